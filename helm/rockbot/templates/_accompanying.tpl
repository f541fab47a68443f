{{- /* Objects that accompany a Deployment: account, service, disruption budget, autoscaler. */ -}}

{{- define "rockbot.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "rockbot.metadata" . | nindent 2 }}
automountServiceAccountToken: false
{{- end }}

{{- /* The service of the admin port, for metrics. Arguments: root, component, ports. */ -}}
{{- define "rockbot.service" -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "rockbot.metadata" . | nindent 2 }}
    rockbot.dev/process: rockbot-{{ .program | default .component }}
spec:
  {{- if .ports }}
  type: ClusterIP
  {{- else }}
  clusterIP: None
  {{- end }}
  selector:
    {{- include "rockbot.selector" . | nindent 4 }}
  ports:
    - name: admin
      port: 9090
      targetPort: admin
    {{- with .ports }}
    {{- . | nindent 4 }}
    {{- end }}
{{- end }}

{{- /* Omitted on clusters without policy/v1. */ -}}
{{- define "rockbot.disruption" -}}
{{- if and .root.Values.disruptionBudget.enabled (.root.Capabilities.APIVersions.Has "policy/v1") -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "rockbot.metadata" . | nindent 2 }}
spec:
  maxUnavailable: {{ .root.Values.disruptionBudget.maxUnavailable }}
  selector:
    matchLabels:
      {{- include "rockbot.selector" . | nindent 6 }}
{{- end }}
{{- end }}

{{- /* Arguments: root, component, values, and queue, the name of the work queue without namespace; for an
       agent also suffix. */ -}}
{{- define "rockbot.autoscaler" -}}
{{- $scaling := .values.autoscaling -}}
{{- $object := .suffix | default .component -}}
{{- $name := printf "%s-%s" (include "rockbot.fullname" .root) $object -}}
{{- if eq $scaling.kind "hpa" -}}
{{- if not (.root.Capabilities.APIVersions.Has "autoscaling/v2") -}}
{{- fail (printf "autoscaling.kind of %s is hpa, and this cluster has no autoscaling/v2" $object) -}}
{{- end -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "rockbot.metadata" . | nindent 2 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ $name }}
  minReplicas: {{ $scaling.minReplicas }}
  maxReplicas: {{ $scaling.maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ $scaling.cpuPercent }}
{{- else if eq $scaling.kind "keda" -}}
apiVersion: keda.sh/v1alpha1
kind: TriggerAuthentication
metadata:
  {{- include "rockbot.metadata" . | nindent 2 }}
spec:
  secretTargetRef:
    - parameter: host
      name: {{ required "keda.existingSecret: the secret with the URL of the broker's management API" .root.Values.keda.existingSecret | quote }}
      key: {{ .root.Values.keda.key | quote }}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  {{- include "rockbot.metadata" . | nindent 2 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ $name }}
  minReplicaCount: {{ $scaling.minReplicas }}
  maxReplicaCount: {{ $scaling.maxReplicas }}
  pollingInterval: 15
  cooldownPeriod: 300
  triggers:
    - type: rabbitmq
      authenticationRef:
        name: {{ $name }}
      metadata:
        # Only the management API counts unacknowledged messages, which are the running calls.
        protocol: http
        vhostName: {{ .root.Values.keda.vhost | quote }}
        queueName: {{ printf "%s.%s" .root.Values.rabbitmq.namespace .queue | quote }}
        mode: QueueLength
        excludeUnacknowledged: "false"
        value: {{ $scaling.queueLength | quote }}
{{- end }}
{{- end }}

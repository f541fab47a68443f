{{- /* Common parts of all pods. */ -}}

{{- /* Restricted PodSecurity. */ -}}
{{- define "rockbot.pod.security" -}}
runAsNonRoot: true
runAsUser: {{ .user | default 65532 }}
runAsGroup: {{ .user | default 65532 }}
fsGroup: {{ .user | default 65532 }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "rockbot.container.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* A process is alive when it responds, and ready when it consumes its queues and can read its
       stores. Without the broker it is not ready, but must not be restarted. */ -}}
{{- define "rockbot.probes" -}}
startupProbe:
  httpGet:
    path: /healthz
    port: admin
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet:
    path: /healthz
    port: admin
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet:
    path: /readyz
    port: admin
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
{{- end }}

{{- /* The pod template of a process. Arguments: root, component, values; for an agent also agent and
       suffix; for a pool of handlers also pool, and program if it is not the component. Parts of a program
       are in the templates rockbot.PROGRAM.env, .secrets, .mounts, .volumes and .ports, each a YAML list. */ -}}
{{- define "rockbot.pod.template" -}}
{{- $values := .values -}}
{{- $program := .program | default .component -}}
{{- $own := printf "rockbot.%s" $program -}}
{{- $config := include "rockbot.config" $values -}}
{{- $secrets := include (printf "%s.secrets" $own) . | trim -}}
metadata:
  labels:
    {{- include "rockbot.labels" . | nindent 4 }}
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- $annotations := $values.podAnnotations | default dict | deepCopy }}
  {{- range $name, $text := .checksums }}
  {{- $_ := set $annotations (printf "checksum/%s" $name) (sha256sum $text) }}
  {{- end }}
  {{- if $config }}
  {{- $_ := set $annotations "checksum/config" (sha256sum $config) }}
  {{- end }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "rockbot.fullname" .root }}-{{ .component }}
  automountServiceAccountToken: {{ eq .component "scripts-manager" }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ add (include "rockbot.drain.seconds" .root) 15 }}
  {{- with .root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . | quote }}
    {{- end }}
  {{- end }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- with .root.Values.hostAliases }}
  hostAliases:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "rockbot.pod.security" dict | nindent 4 }}
  containers:
    - name: {{ $program }}
      image: {{ include "rockbot.image" (dict "root" .root "binary" (printf "rockbot-%s" $program) "image" $values.image) | quote }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      {{- if $config }}
      args: [--config, /etc/rockbot/config.toml]
      {{- end }}
      env:
        {{- include "rockbot.common.env" . | nindent 8 }}
        {{- with include (printf "%s.env" $own) . | trim }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with $values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $values.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - name: admin
          containerPort: 9090
        {{- with include (printf "%s.ports" $own) . | trim }}
        {{- . | nindent 8 }}
        {{- end }}
      {{- include "rockbot.probes" . | nindent 6 }}
      resources:
        {{- toYaml $values.resources | nindent 8 }}
      securityContext:
        {{- include "rockbot.container.security" . | nindent 8 }}
      volumeMounts:
        - name: tmp
          mountPath: /tmp
        {{- if $secrets }}
        - name: secrets
          mountPath: /run/secrets/rockbot
          readOnly: true
        {{- end }}
        {{- if $config }}
        - name: config
          mountPath: /etc/rockbot/config.toml
          subPath: config.toml
          readOnly: true
        {{- end }}
        {{- with include (printf "%s.mounts" $own) . | trim }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with $values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir:
        medium: Memory
        sizeLimit: {{ $values.tmpSize | default "64Mi" }}
    {{- with $secrets }}
    - name: secrets
      projected:
        defaultMode: 0440
        sources:
          {{- . | nindent 10 }}
    {{- end }}
    {{- if $config }}
    - name: config
      configMap:
        name: {{ include "rockbot.fullname" .root }}-{{ .suffix | default .component }}
    {{- end }}
    {{- with include (printf "%s.volumes" $own) . | trim }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with $values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    {{- $selector := include "rockbot.selector" . }}
    {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- $selector | nindent 10 }}
    {{- end }}
{{- end }}

{{- /* A Deployment and, with config or settings, its ConfigMap. Arguments: those of the pod template, and replace:
       true if the old pod must end before a new one starts. */ -}}
{{- define "rockbot.deployment" -}}
{{- $scaling := .values.autoscaling | default dict -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "rockbot.metadata" . | nindent 2 }}
spec:
  {{- if eq ($scaling.kind | default "none") "none" }}
  replicas: {{ .replicas | default .values.replicas }}
  {{- end }}
  revisionHistoryLimit: 5
  strategy:
    {{- if .replace }}
    type: Recreate
    {{- else }}
    type: RollingUpdate
    rollingUpdate:
      maxUnavailable: 0
      maxSurge: 1
    {{- end }}
  selector:
    matchLabels:
      {{- include "rockbot.selector" . | nindent 6 }}
  template:
    {{- include "rockbot.pod.template" . | nindent 4 }}
{{- with include "rockbot.config" .values }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "rockbot.metadata" $ | nindent 2 }}
data:
  config.toml: |
    {{- . | trimSuffix "\n" | nindent 4 }}
{{- end }}
{{- end }}

{{- /* Parts of NetworkPolicies. Policies are additive; network-policy.yaml denies all traffic of the
       release's pods. */ -}}

{{- define "rockbot.network.ports" -}}
{{- range . }}
- protocol: TCP
  port: {{ . }}
{{- end }}
{{- end }}

{{- /* An egress rule. Arguments: to, a list of peers (any destination when empty), and ports. */ -}}
{{- define "rockbot.network.rule" -}}
- ports:
    {{- include "rockbot.network.ports" .ports | trim | nindent 4 }}
  {{- with .to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "rockbot.network.dns" -}}
- ports:
    - protocol: UDP
      port: 53
    - protocol: TCP
      port: 53
  {{- with .root.Values.networkPolicy.dns.to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- /* A peer for the pods of a component of this release. */ -}}
{{- define "rockbot.network.peer" -}}
- podSelector:
    matchLabels:
      {{- include "rockbot.selector" . | nindent 6 }}
{{- end }}

{{- define "rockbot.network.broker" -}}
{{- $ports := .root.Values.networkPolicy.broker.ports -}}
{{- $to := .root.Values.networkPolicy.broker.to -}}
{{- if eq .root.Values.rabbitmq.mode "embedded" -}}
{{- $ports = list 5672 -}}
{{- $to = include "rockbot.network.peer" (dict "root" .root "component" "rabbitmq") | fromYamlArray -}}
{{- else if eq .root.Values.rabbitmq.mode "operator" -}}
{{- $to = list (dict "podSelector" (dict "matchLabels" (dict "app.kubernetes.io/name" (printf "%s-rabbitmq" (include "rockbot.fullname" .root))))) -}}
{{- end -}}
{{ include "rockbot.network.rule" (dict "to" $to "ports" $ports) }}
{{- end }}

{{- define "rockbot.network.store" -}}
{{- if ne .root.Values.postgresql.mode "memory" -}}
{{- $ports := .root.Values.networkPolicy.store.ports -}}
{{- $to := .root.Values.networkPolicy.store.to -}}
{{- if eq .root.Values.postgresql.mode "embedded" -}}
{{- $ports = list 5432 -}}
{{- $to = include "rockbot.network.peer" (dict "root" .root "component" "postgresql") | fromYamlArray -}}
{{- else if eq .root.Values.postgresql.mode "operator" -}}
{{- $ports = list 5432 -}}
{{- $to = list (dict "podSelector" (dict "matchLabels" (dict "cnpg.io/cluster" (printf "%s-postgresql" (include "rockbot.fullname" .root))))) -}}
{{- end -}}
{{ include "rockbot.network.rule" (dict "to" $to "ports" $ports) }}
{{- end -}}
{{- end }}

{{- define "rockbot.network.model" -}}
{{ include "rockbot.network.rule" .root.Values.networkPolicy.model }}
{{- end }}

{{- /* The policy of a process. Arguments: root, component, values, and into, ingress rules in addition
       to that of the admin port. Its egress rules are in the template rockbot.PROGRAM.egress. */ -}}
{{- define "rockbot.network.policy" -}}
{{- if .root.Values.networkPolicy.enabled -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "rockbot.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "rockbot.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    {{- with .root.Values.networkPolicy.monitoring.from }}
    - ports:
        - protocol: TCP
          port: 9090
      from:
        {{- toYaml . | nindent 8 }}
    {{- end }}
    {{- with .into }}
    {{- . | nindent 4 }}
    {{- end }}
  egress:
    {{- include "rockbot.network.dns" . | nindent 4 }}
    {{- if .root.Values.telemetry.otlpEndpoint }}
    {{- include "rockbot.network.rule" .root.Values.networkPolicy.telemetry | nindent 4 }}
    {{- end }}
    {{- with include (printf "rockbot.%s.egress" (.program | default .component)) . | trim }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with .values.extraEgress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- end }}

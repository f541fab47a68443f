{{- /* The agents that can be used, as a JSON list. */ -}}
{{- define "rockbot.gateway.agents" -}}
{{- $agents := .root.Values.gateway.agents -}}
{{- if not $agents -}}
{{- range .root.Values.agents -}}
{{- if not .toolOnly -}}{{- $agents = append $agents .name -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $agents -}}
{{- end }}

{{- define "rockbot.gateway.env" -}}
{{ include "rockbot.broker.env" . }}
{{ include "rockbot.store.env" (dict "root" .root "name" "ROCKBOT_GATEWAY__STORE") }}
- name: ROCKBOT_GATEWAY__ADDRESS
  value: "0.0.0.0:8420"
- name: ROCKBOT_GATEWAY__FACES
  value: {{ toJson .values.faces | quote }}
- name: ROCKBOT_GATEWAY__AGENTS
  value: {{ include "rockbot.gateway.agents" . | quote }}
- name: ROCKBOT_GATEWAY__SIGN_IN
  value: {{ .values.signIn }}
- name: ROCKBOT_GATEWAY__PROXY__TRUSTED_PEERS
  value: {{ toJson .values.trustedProxies | quote }}
- name: ROCKBOT_GATEWAY__ALLOWED_HOSTS
  value: {{ concat (list (include "rockbot.gateway.host" .)) .values.allowedHosts | toJson | quote }}
{{- with .values.publicUrl }}
- name: ROCKBOT_GATEWAY__PUBLIC_URL
  value: {{ . | quote }}
{{- end }}
{{- if .values.tokens.existingSecret }}
- name: ROCKBOT_GATEWAY__TOKENS
  value: /run/secrets/rockbot/gateway-tokens.toml
{{- end }}
{{- if .values.signingKey.existingSecret }}
- name: ROCKBOT_GATEWAY__A2A__SIGNING_KEY_FILE
  value: /run/secrets/rockbot/card.key
{{- end }}
{{- range $connection := list "watch" "letters" "calls" }}
{{- if (get $.values $connection).enabled }}
- name: ROCKBOT_GATEWAY__{{ upper $connection }}__URL_FILE
  value: /run/secrets/rockbot/{{ $connection }}-broker-url
{{- end }}
{{- end }}
{{- end }}

{{- define "rockbot.gateway.host" -}}
{{ include "rockbot.fullname" .root }}-gateway.{{ .root.Release.Namespace }}.svc
{{- end }}

{{- define "rockbot.gateway.secrets" -}}
{{ include "rockbot.broker.secret" (dict "root" .root "values" .values "user" .component) }}
{{ include "rockbot.store.secret" . }}
{{- with .values.tokens }}
{{- if .existingSecret }}
{{ include "rockbot.secret.file" (dict "secret" .existingSecret "key" .key "path" "gateway-tokens.toml") }}
{{- end }}
{{- end }}
{{- with .values.signingKey }}
{{- if .existingSecret }}
{{ include "rockbot.secret.file" (dict "secret" .existingSecret "key" .key "path" "card.key") }}
{{- end }}
{{- end }}
{{- range $connection, $user := dict "watch" "monitor" "letters" "operator" "calls" .values.calls.user }}
{{- if (get $.values $connection).enabled }}
{{ include "rockbot.secret.file" (dict "secret" $.root.Values.rabbitmq.existingSecret "key" (printf "%s.%s" $.root.Values.rabbitmq.namespace $user) "path" (printf "%s-broker-url" $connection)) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "rockbot.gateway.mounts" -}}
{{- end }}

{{- define "rockbot.gateway.volumes" -}}
{{- end }}

{{- define "rockbot.gateway.ports" -}}
- name: http
  containerPort: 8420
{{- end }}

{{- define "rockbot.gateway.egress" -}}
{{ include "rockbot.network.broker" . }}
{{ include "rockbot.network.store" . }}
{{- end }}

{{- define "rockbot.gateway.into" -}}
- ports:
    - protocol: TCP
      port: 8420
  from:
    {{- toYaml .values.clients | nindent 4 }}
    {{- if .root.Values.tests.enabled }}
    {{- include "rockbot.network.peer" (dict "root" .root "component" "test") | nindent 4 }}
    {{- end }}
{{- end }}

{{- /* Problems of the gateway, as a JSON list. */ -}}
{{- define "rockbot.checks.gateway" -}}
{{- $problems := list -}}
{{- with .Values.gateway -}}
{{- if .enabled -}}
{{- if and $.Values.networkPolicy.enabled (not .clients) -}}
{{- $problems = append $problems "gateway.clients: nothing could connect; name the pods that may, such as those of the ingress controller" -}}
{{- end -}}
{{- $several := or (gt (int .replicas) 1) (ne .autoscaling.kind "none") -}}
{{- if and $several (eq $.Values.postgresql.mode "memory") -}}
{{- $problems = append $problems "gateway.replicas: without a database each replica would recognize only its own requests; set another postgresql.mode, or replicas: 1 without autoscaling" -}}
{{- end -}}
{{- if and (eq $.Values.profile "production") (not (hasPrefix "https://" .publicUrl)) -}}
{{- $problems = append $problems "gateway.publicUrl: profile production requires the https:// URL under which people reach the gateway" -}}
{{- end -}}
{{- if and (has "mcp" .faces) (not .calls.enabled) -}}
{{- $problems = append $problems "gateway.calls.enabled: the face mcp calls tools and needs it" -}}
{{- end -}}
{{- if and (eq .signIn "proxy") (not .trustedProxies) -}}
{{- $problems = append $problems "gateway.trustedProxies: signIn proxy needs the addresses of the proxy" -}}
{{- end -}}
{{- if and (eq .signIn "none") (not .tokens.existingSecret) -}}
{{- $problems = append $problems "gateway.tokens.existingSecret: with signIn none nothing could sign in without tokens; create them with rockbot gateway token new" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end }}

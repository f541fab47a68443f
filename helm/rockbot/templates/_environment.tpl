{{- /* Secrets and environment variables for the broker, the store and the model. */ -}}

{{- define "rockbot.broker.host" -}}
{{ include "rockbot.fullname" . }}-rabbitmq.{{ .Release.Namespace }}.svc
{{- end }}

{{- /* A file of a process's secrets, from an existing secret. */ -}}
{{- define "rockbot.secret.file" -}}
- secret:
    name: {{ .secret | quote }}
    items:
      - key: {{ .key | quote }}
        path: {{ .path }}
{{- end }}

{{- /* The URL of the broker for the user of a process. Arguments: root, user, values. */ -}}
{{- define "rockbot.broker.secret" -}}
{{- $own := .values.broker | default dict -}}
{{- $secret := $own.existingSecret | default .root.Values.rabbitmq.existingSecret -}}
{{- $key := $own.key | default (printf "%s.%s" .root.Values.rabbitmq.namespace .user) -}}
{{ include "rockbot.secret.file" (dict "secret" $secret "key" $key "path" "broker-url") }}
{{- with .root.Values.rabbitmq.tls.caSecret }}
{{ include "rockbot.secret.file" (dict "secret" . "key" $.root.Values.rabbitmq.tls.caKey "path" "broker-ca.pem") }}
{{- end }}
{{- with $own.certificateSecret }}
- secret:
    name: {{ . | quote }}
    items:
      - key: tls.crt
        path: broker-cert.pem
      - key: tls.key
        path: broker-key.pem
{{- end }}
{{- end }}

{{- define "rockbot.broker.env" -}}
- name: ROCKBOT_BUS__URL_FILE
  value: /run/secrets/rockbot/broker-url
- name: ROCKBOT_BUS__NAMESPACE
  value: {{ .root.Values.rabbitmq.namespace | quote }}
{{- if .root.Values.rabbitmq.tls.caSecret }}
- name: ROCKBOT_BUS__TLS__CA_FILE
  value: /run/secrets/rockbot/broker-ca.pem
{{- end }}
{{- if (.values.broker | default dict).certificateSecret }}
- name: ROCKBOT_BUS__TLS__CERT_FILE
  value: /run/secrets/rockbot/broker-cert.pem
- name: ROCKBOT_BUS__TLS__KEY_FILE
  value: /run/secrets/rockbot/broker-key.pem
{{- end }}
{{- end }}

{{- define "rockbot.store.secret" -}}
{{- $store := .root.Values.postgresql -}}
{{- $own := .values.store | default dict -}}
{{- if ne $store.mode "memory" -}}
{{- /* The operator creates a secret with the URL under "uri". */ -}}
{{- $default := eq $store.mode "operator" | ternary (printf "%s-postgresql-app" (include "rockbot.fullname" .root)) "rockbot-store" -}}
{{- $secret := $own.existingSecret | default $store.existingSecret | default $default -}}
{{- $key := $own.key | default $store.urlKey | default (eq $store.mode "operator" | ternary "uri" "url") -}}
{{ include "rockbot.secret.file" (dict "secret" $secret "key" $key "path" "store-url") }}
{{- end -}}
{{- end }}

{{- /* The variable of the store, such as ROCKBOT_STORE__URL. Arguments: root, name. */ -}}
{{- define "rockbot.store.env" -}}
{{- if eq .root.Values.postgresql.mode "memory" -}}
- name: {{ .name }}
  value: "memory:"
{{- else -}}
- name: {{ .name }}_FILE
  value: /run/secrets/rockbot/store-url
{{- end -}}
{{- end }}

{{- define "rockbot.model.secret" -}}
{{- with .root.Values.model.existingSecret }}
{{- include "rockbot.secret.file" (dict "secret" . "key" $.root.Values.model.key "path" "model-key") }}
{{- end }}
{{- end }}

{{- define "rockbot.model.env" -}}
{{- with .root.Values.model }}
{{- if .existingSecret }}
- name: ROCKBOT_LLM__API_KEY_FILE
  value: /run/secrets/rockbot/model-key
{{- end }}
{{- with .baseUrl }}
- name: ROCKBOT_LLM__BASE_URL
  value: {{ . | quote }}
{{- end }}
{{- with .name }}
- name: ROCKBOT_LLM__MODEL
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* The value drain, in seconds. */}}
{{- define "rockbot.drain.seconds" -}}
{{- $unit := ternary 60 1 (hasSuffix "m" .Values.drain) -}}
{{- mul (regexFind "^[0-9]+" .Values.drain) $unit -}}
{{- end }}

{{- define "rockbot.common.env" -}}
- name: ROCKBOT_SERVICE__PROFILE
  value: {{ .root.Values.profile }}
- name: ROCKBOT_SERVICE__DRAIN
  value: {{ .root.Values.drain | quote }}
- name: ROCKBOT_ADMIN__ADDRESS
  value: "0.0.0.0:9090"
- name: ROCKBOT_LOG__LEVEL
  value: {{ .values.logLevel | default .root.Values.log.level | quote }}
- name: ROCKBOT_LOG__FORMAT
  value: {{ .root.Values.log.format | quote }}
{{- if eq .root.Values.postgresql.mode "operator" }}
# The URL in the operator's secret has no sslmode.
- name: PGSSLMODE
  value: require
{{- end }}
{{- with .root.Values.telemetry }}
{{- if .otlpEndpoint }}
- name: ROCKBOT_TELEMETRY__OTLP_ENDPOINT
  value: {{ .otlpEndpoint | quote }}
- name: ROCKBOT_TELEMETRY__OTLP_PROTOCOL
  value: {{ .otlpProtocol | quote }}
- name: ROCKBOT_TELEMETRY__SAMPLE_RATIO
  value: {{ .sampleRatio | quote }}
- name: ROCKBOT_TELEMETRY__CONTENT
  value: {{ .content | quote }}
- name: ROCKBOT_TELEMETRY__SERVICE_NAMESPACE
  value: {{ .serviceNamespace | quote }}
{{- end }}
{{- end }}
{{- end }}

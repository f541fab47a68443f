{{- define "rockbot.scripts-manager.env" -}}
{{ include "rockbot.broker.env" . }}
{{ include "rockbot.store.env" (dict "root" .root "name" "ROCKBOT_STORE__URL") }}
- name: ROCKBOT_SCRIPTS__NAMESPACE
  value: {{ include "rockbot.scripts.namespace" .root }}
- name: ROCKBOT_SCRIPTS__IMAGE
  value: {{ .values.scriptImage | quote }}
{{- with .values.runtimeClass }}
- name: ROCKBOT_SCRIPTS__RUNTIME_CLASS
  value: {{ . | quote }}
{{- end }}
{{- with .values.packages }}
{{- if .enabled }}
- name: ROCKBOT_SCRIPTS__PACKAGES__CLAIM
  value: rockbot-script-packages
- name: ROCKBOT_SCRIPTS__PACKAGES__INDEX_URL
  value: {{ .indexUrl | quote }}
{{- end }}
{{- end }}
- name: ROCKBOT_HANDLER__CONCURRENCY
  value: {{ .values.concurrency | quote }}
{{- end }}

{{- define "rockbot.scripts-manager.secrets" -}}
{{ include "rockbot.broker.secret" (dict "root" .root "values" .values "user" .component) }}
{{ include "rockbot.store.secret" . }}
{{- end }}

{{- define "rockbot.scripts-manager.mounts" -}}
{{- end }}

{{- define "rockbot.scripts-manager.volumes" -}}
{{- end }}

{{- define "rockbot.scripts-manager.ports" -}}
{{- end }}

{{- define "rockbot.scripts-manager.egress" -}}
{{ include "rockbot.network.broker" . }}
{{ include "rockbot.network.store" . }}
{{ include "rockbot.network.rule" .root.Values.networkPolicy.apiServer }}
{{- end }}

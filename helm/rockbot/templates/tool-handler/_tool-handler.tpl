{{- define "rockbot.tool-handler.env" -}}
{{ include "rockbot.broker.env" . }}
{{ include "rockbot.store.env" (dict "root" .root "name" "ROCKBOT_STORE__URL") }}
- name: ROCKBOT_FILES__ROOT
  value: /files
- name: ROCKBOT_FILES__ALLOW_BASH
  value: {{ .values.allowBash | quote }}
{{- end }}

{{- define "rockbot.tool-handler.secrets" -}}
{{ include "rockbot.broker.secret" (dict "root" .root "values" .values "user" .component) }}
{{ include "rockbot.store.secret" . }}
{{- end }}

{{- define "rockbot.tool-handler.mounts" -}}
- name: work
  mountPath: /files
{{- end }}

{{- define "rockbot.tool-handler.volumes" -}}
- name: work
  {{- with .values.work }}
  {{- if or .existingClaim .claim.enabled }}
  persistentVolumeClaim:
    claimName: {{ .existingClaim | default (printf "%s-work" (include "rockbot.fullname" $.root)) }}
  {{- else }}
  emptyDir:
    sizeLimit: {{ .size }}
  {{- end }}
  {{- end }}
{{- end }}

{{- define "rockbot.tool-handler.ports" -}}
{{- end }}

{{- define "rockbot.tool-handler.egress" -}}
{{ include "rockbot.network.broker" . }}
{{ include "rockbot.network.store" . }}
{{- end }}

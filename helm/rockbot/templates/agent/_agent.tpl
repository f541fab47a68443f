{{- /* Not empty if there are definitions in addition to the built-in assistant. */ -}}
{{- define "rockbot.agent.defined" -}}
{{- range .root.Values.agents }}{{ if .definition }}true{{ end }}{{ end -}}
{{- end }}

{{- define "rockbot.agent.env" -}}
{{ include "rockbot.broker.env" . }}
{{ include "rockbot.store.env" (dict "root" .root "name" "ROCKBOT_MEMORY__STORE") }}
{{ include "rockbot.store.env" (dict "root" .root "name" "ROCKBOT_AGENT__CONVERSATIONS__STORE") }}
{{- if .values.pins }}
{{ include "rockbot.store.env" (dict "root" .root "name" "ROCKBOT_PINS__STORE") }}
{{- end }}
# Quoted twice, because the name may look like a number.
- name: ROCKBOT_AGENT__NAME
  value: {{ .agent | quote | squote }}
{{- if include "rockbot.agent.defined" . }}
- name: ROCKBOT_AGENT__DIRECTORY
  value: /etc/rockbot/agents
{{- end }}
{{- if .root.Values.scriptsManager.enabled }}
- name: ROCKBOT_SCRIPTS__RUNNER
  value: {{ ternary "bus" "off" .values.scripts | quote }}
{{- end }}
{{- include "rockbot.model.env" . }}
{{- end }}

{{- define "rockbot.agent.secrets" -}}
{{ include "rockbot.broker.secret" (dict "root" .root "values" .values "user" (printf "agent.%s" .agent)) }}
{{ include "rockbot.store.secret" . }}
{{ include "rockbot.model.secret" . }}
{{- end }}

{{- define "rockbot.agent.mounts" -}}
{{- if include "rockbot.agent.defined" . }}
- name: agents
  mountPath: /etc/rockbot/agents
  readOnly: true
{{- end }}
{{- end }}

{{- define "rockbot.agent.volumes" -}}
{{- if include "rockbot.agent.defined" . }}
- name: agents
  configMap:
    name: {{ include "rockbot.fullname" .root }}-agents
{{- end }}
{{- end }}

{{- define "rockbot.agent.ports" -}}
{{- end }}

{{- define "rockbot.agent.egress" -}}
{{ include "rockbot.network.broker" . }}
{{ include "rockbot.network.store" . }}
{{ include "rockbot.network.model" . }}
{{- end }}

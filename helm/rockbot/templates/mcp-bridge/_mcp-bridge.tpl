{{- /* Not empty if the bridge serves the OpenRouter MCP server of this release. */ -}}
{{- define "rockbot.mcp-bridge.openrouter" -}}
{{- if and .root.Values.openrouterMcp.enabled .root.Values.openrouterMcp.register -}}true{{- end -}}
{{- end }}

{{- define "rockbot.openrouter.host" -}}
{{ include "rockbot.fullname" .root }}-openrouter-mcp.{{ .root.Release.Namespace }}.svc
{{- end }}

{{- define "rockbot.mcp-bridge.env" -}}
{{ include "rockbot.broker.env" . }}
{{ include "rockbot.store.env" (dict "root" .root "name" "ROCKBOT_STORE__URL") }}
- name: ROCKBOT_MCP__CONFIG
  value: /etc/rockbot/mcp/mcp.json
- name: ROCKBOT_MCP__TOKENS
  value: /var/lib/rockbot/mcp-tokens
{{- $private := .values.allowPrivate }}
{{- if include "rockbot.mcp-bridge.openrouter" . }}
{{- $private = append $private (include "rockbot.openrouter.host" .) }}
{{- end }}
- name: ROCKBOT_MCP__ALLOW_PLAIN_HTTP
  value: {{ or .values.allowPlainHttp (include "rockbot.mcp-bridge.openrouter" . | not | not) | quote }}
- name: ROCKBOT_MCP__ALLOW_PRIVATE
  value: {{ toJson $private | quote }}
{{- if .values.summaries }}
- name: ROCKBOT_MCP__SUMMARIES
  value: "true"
{{ include "rockbot.model.env" . | trim }}
{{- end }}
{{- end }}

{{- define "rockbot.mcp-bridge.secrets" -}}
{{ include "rockbot.broker.secret" (dict "root" .root "values" .values "user" .component) }}
{{ include "rockbot.store.secret" . }}
{{- if .values.summaries }}
{{ include "rockbot.model.secret" . }}
{{- end }}
{{- end }}

{{- define "rockbot.mcp-bridge.mounts" -}}
- name: servers
  mountPath: /etc/rockbot/mcp
  readOnly: true
- name: tokens
  mountPath: /var/lib/rockbot
{{- end }}

{{- define "rockbot.mcp-bridge.volumes" -}}
- name: servers
  {{- if .values.serversSecret }}
  secret:
    secretName: {{ .values.serversSecret | quote }}
    defaultMode: 0440
    items:
      - key: mcp.json
        path: mcp.json
  {{- else }}
  configMap:
    name: {{ include "rockbot.fullname" .root }}-mcp-servers
  {{- end }}
- name: tokens
  {{- if .values.tokensClaim }}
  persistentVolumeClaim:
    claimName: {{ .values.tokensClaim | quote }}
  {{- else }}
  emptyDir:
    sizeLimit: 16Mi
  {{- end }}
{{- end }}

{{- define "rockbot.mcp-bridge.ports" -}}
{{- end }}

{{- define "rockbot.mcp-bridge.egress" -}}
{{ include "rockbot.network.broker" . }}
{{ include "rockbot.network.store" . }}
{{ include "rockbot.network.rule" .root.Values.networkPolicy.mcp }}
{{- if include "rockbot.mcp-bridge.openrouter" . }}
{{ include "rockbot.network.rule" (dict "ports" (list 8931) "to" (include "rockbot.network.peer" (dict "root" .root "component" "openrouter-mcp") | fromYamlArray)) }}
{{- end }}
{{- if .values.summaries }}
{{ include "rockbot.network.model" . }}
{{- end }}
{{- end }}

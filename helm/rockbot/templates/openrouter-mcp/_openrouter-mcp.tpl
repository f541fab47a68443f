{{- define "rockbot.openrouter-mcp.env" -}}
- name: ROCKBOT_SERVER__ADDRESS
  value: "0.0.0.0:8931"
- name: ROCKBOT_SERVER__ALLOWED_HOSTS
  value: {{ concat (list (include "rockbot.openrouter.host" .)) .values.allowedHosts | toJson | quote }}
- name: ROCKBOT_OPENROUTER__API_KEY_FILE
  value: /run/secrets/rockbot/openrouter-key
{{- end }}

{{- define "rockbot.openrouter-mcp.secrets" -}}
{{ include "rockbot.secret.file" (dict "secret" .values.existingSecret "key" .values.key "path" "openrouter-key") }}
{{- end }}

{{- define "rockbot.openrouter-mcp.mounts" -}}
{{- end }}

{{- define "rockbot.openrouter-mcp.volumes" -}}
{{- end }}

{{- define "rockbot.openrouter-mcp.ports" -}}
- name: mcp
  containerPort: 8931
{{- end }}

{{- define "rockbot.openrouter-mcp.egress" -}}
{{ include "rockbot.network.rule" .root.Values.networkPolicy.openrouter }}
{{- end }}

{{- define "rockbot.openrouter-mcp.into" -}}
# Every client can read the account, so only the bridge of this release may connect.
- ports:
    - protocol: TCP
      port: 8931
  from:
    {{- include "rockbot.network.peer" (dict "root" .root "component" "mcp-bridge") | nindent 4 }}
    {{- with .values.clients }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{- define "rockbot.test.metadata" -}}
name: {{ include "rockbot.fullname" .root }}-test-{{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "rockbot.labels" (dict "root" .root "component" "test") | nindent 2 }}
annotations:
  helm.sh/hook: test
  helm.sh/hook-weight: {{ .weight | default "0" | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{- define "rockbot.test.pod" -}}
restartPolicy: Never
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "rockbot.pod.security" dict | nindent 2 }}
{{- end }}

{{- /* A container that runs rockbot as the broker user cli. Arguments: root, name, args. */ -}}
{{- define "rockbot.test.command" -}}
name: {{ .name }}
image: {{ include "rockbot.image" (dict "root" .root "binary" "rockbot" "image" .root.Values.tests.image) | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
args: {{ toJson .args }}
env:
  {{- include "rockbot.broker.env" (dict "root" .root "values" .root.Values.tests) | nindent 2 }}
resources:
  {{- toYaml .root.Values.tests.resources | nindent 2 }}
securityContext:
  {{- include "rockbot.container.security" . | nindent 2 }}
{{- end }}

{{- define "rockbot.test.python" -}}
image: {{ .root.Values.tests.pythonImage | default .root.Values.scriptsManager.scriptImage | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
{{- with .root.Values.tests.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
resources:
  {{- toYaml .root.Values.tests.resources | nindent 2 }}
securityContext:
  {{- include "rockbot.container.security" . | nindent 2 }}
{{- end }}

{{- define "rockbot.test.secrets" -}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- include "rockbot.broker.secret" (dict "root" . "values" .Values.tests "user" "cli") | nindent 6 }}
{{- end }}

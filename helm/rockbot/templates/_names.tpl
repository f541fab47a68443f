{{- /* Names and labels. A component is a deployable program: agent, tool-handler, … */ -}}

{{- define "rockbot.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "rockbot.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "rockbot.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "rockbot.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- /* Labels of selectors, which are immutable in a Deployment. */ -}}
{{- define "rockbot.selector" -}}
app.kubernetes.io/name: {{ include "rockbot.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- with .agent }}
rockbot.dev/agent: {{ . | quote }}
{{- end }}
{{- end }}

{{- define "rockbot.labels" -}}
{{ include "rockbot.selector" . }}
{{- with .pool }}
rockbot.dev/pool: {{ . | quote }}
{{- end }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: rockbot
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* Metadata of an object. Arguments: root, and optionally component, agent, suffix, namespace. */ -}}
{{- define "rockbot.metadata" -}}
name: {{ include "rockbot.fullname" .root }}{{ with .suffix | default .component }}-{{ . }}{{ end }}
namespace: {{ .namespace | default .root.Release.Namespace }}
labels:
  {{- include "rockbot.labels" . | nindent 2 }}
{{- end }}

{{- /* An agent's name in the form of Kubernetes object names. */ -}}
{{- define "rockbot.agent.suffix" -}}
agent-{{ .name | lower | replace "_" "-" }}
{{- end }}

{{- define "rockbot.image" -}}
{{- $tag := default .root.Chart.AppVersion .root.Values.image.tag -}}
{{- .image | default (printf "%s/%s:%s" .root.Values.image.registry .binary $tag) -}}
{{- end }}

{{- define "rockbot.scripts.namespace" -}}
{{- .Values.scriptsManager.namespace.name | default (printf "%s-scripts" .Release.Namespace) -}}
{{- end }}

{{- /* Renders a template for the handlers without a pool and for each pool, as documents of a file.
       Arguments: root, and template, the name of one with the arguments of the pod template and queue
       (the work queue without namespace), user (the broker user without namespace) and families. */ -}}
{{- define "rockbot.tool-handler.each" -}}
{{- $root := .root -}}
{{- $template := .template -}}
{{- with $root.Values.toolHandler -}}
{{- if .enabled -}}
{{ include $template (dict "root" $root "component" "tool-handler" "program" "tool-handler" "user" "tool-handler" "queue" "tool.invoke" "work" "work" "families" (list "files" "scripts") "values" .) }}
{{- end -}}
{{- end -}}
{{- range $pool := $root.Values.toolHandlers }}
{{- /* Keys of an entry override those for all pools. */ -}}
{{- $values := mergeOverwrite (deepCopy $root.Values.toolHandlerPool) $pool }}
{{- $handler := dict "root" $root "component" (include "rockbot.tool-handler.component" .name) "program" "tool-handler" "pool" .name "values" $values }}
{{- $_ := set $handler "user" (printf "tool-handler.%s" .name) }}
{{- $_ := set $handler "queue" (printf "tool.invoke.pool.%s" .name) }}
{{- $_ := set $handler "work" (printf "work-%s" .name) }}
{{- $_ := set $handler "families" .families }}
{{- with include $template $handler | trim }}
---
{{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The component of a pool, which no other component's selector matches. */ -}}
{{- define "rockbot.tool-handler.component" -}}
tool-handler-{{ . }}
{{- end }}

{{- /* The components of all handlers, as a JSON list. */ -}}
{{- define "rockbot.tool-handler.components" -}}
{{- $components := list "tool-handler" -}}
{{- range .Values.toolHandlers -}}
{{- $components = append $components (include "rockbot.tool-handler.component" .name) -}}
{{- end -}}
{{- toJson $components -}}
{{- end }}

{{- define "rockbot.tool-handler.deployment" -}}
{{- /* Only one node can mount the volume, so a new pod on another node would wait for the old one. */ -}}
{{- $claim := .values.work.claim -}}
{{- $replace := and (has "files" .families) $claim.enabled (eq $claim.accessMode "ReadWriteOnce") -}}
{{- include "rockbot.deployment" (merge (dict "replace" $replace) .) }}
{{- with .values.rest }}
---
# The handler checks this file every second, without a new pod.
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "rockbot.metadata" (merge (dict "suffix" (printf "rest-%s" $.pool)) $) | nindent 2 }}
data:
  rest.json: |
    {{- toPrettyJson . | nindent 4 }}
{{- end }}
{{- end }}

{{- define "rockbot.tool-handler.scaling" -}}
{{- include "rockbot.disruption" . }}
---
{{ include "rockbot.autoscaler" . }}
{{- end }}

{{- define "rockbot.tool-handler.work" -}}
{{- $work := .values.work -}}
{{- if and (has "files" .families) $work.claim.enabled (not $work.existingClaim) -}}
# The files of the tools. They outlive the release: delete the claim to remove them.
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  {{- include "rockbot.metadata" (merge (dict "suffix" .work) .) | nindent 2 }}
  annotations:
    helm.sh/resource-policy: keep
spec:
  accessModes: [{{ $work.claim.accessMode }}]
  {{- with $work.claim.storageClass }}
  storageClassName: {{ . | quote }}
  {{- end }}
  resources:
    requests:
      storage: {{ $work.size }}
{{- end }}
{{- end }}

{{- define "rockbot.tool-handler.env" -}}
{{ include "rockbot.broker.env" . }}
{{ include "rockbot.store.env" (dict "root" .root "name" "ROCKBOT_STORE__URL") }}
{{- with .pool }}
# Quoted twice, because the name may look like a number.
- name: ROCKBOT_HANDLER__POOL
  value: {{ . | quote | squote }}
- name: ROCKBOT_HANDLER__FAMILIES
  value: {{ toJson $.families | quote }}
{{- end }}
{{- if has "files" .families }}
- name: ROCKBOT_FILES__ROOT
  value: /files
- name: ROCKBOT_FILES__ALLOW_BASH
  value: {{ .values.allowBash | quote }}
{{- end }}
{{- if include "rockbot.tool-handler.rest" . }}
- name: ROCKBOT_REST__CONFIG
  value: /etc/rockbot/rest/rest.json
{{- end }}
{{- range $variable, $_ := .values.secrets }}
- name: {{ $variable }}_FILE
  value: /run/secrets/rockbot/{{ $variable }}
{{- end }}
{{- end }}

{{- /* Not empty if the pool has a file of REST tools. */ -}}
{{- define "rockbot.tool-handler.rest" -}}
{{- if or .values.rest .values.restSecret -}}true{{- end -}}
{{- end }}

{{- define "rockbot.tool-handler.secrets" -}}
{{ include "rockbot.broker.secret" (dict "root" .root "values" .values "user" .user) }}
{{ include "rockbot.store.secret" . }}
{{- range $variable, $secret := .values.secrets }}
{{ include "rockbot.secret.file" (dict "secret" $secret.existingSecret "key" $secret.key "path" $variable) }}
{{- end }}
{{- end }}

{{- define "rockbot.tool-handler.mounts" -}}
{{- if has "files" .families }}
- name: work
  mountPath: /files
{{- end }}
{{- if include "rockbot.tool-handler.rest" . }}
- name: rest
  mountPath: /etc/rockbot/rest
  readOnly: true
{{- end }}
{{- end }}

{{- define "rockbot.tool-handler.volumes" -}}
{{- if has "files" .families }}
- name: work
  {{- $work := .values.work }}
  {{- if or $work.existingClaim $work.claim.enabled }}
  persistentVolumeClaim:
    claimName: {{ $work.existingClaim | default (printf "%s-%s" (include "rockbot.fullname" .root) .work) }}
  {{- else }}
  emptyDir:
    sizeLimit: {{ $work.size }}
  {{- end }}
{{- end }}
{{- if include "rockbot.tool-handler.rest" . }}
- name: rest
  {{- if .values.restSecret }}
  secret:
    secretName: {{ .values.restSecret | quote }}
    defaultMode: 0440
    items:
      - key: rest.json
        path: rest.json
  {{- else }}
  configMap:
    name: {{ include "rockbot.fullname" .root }}-rest-{{ .pool }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "rockbot.tool-handler.ports" -}}
{{- end }}

{{- define "rockbot.tool-handler.egress" -}}
{{ include "rockbot.network.broker" . }}
{{ include "rockbot.network.store" . }}
{{- if eq (.values.egress | default "none") "web" }}
{{ include "rockbot.network.rule" .root.Values.networkPolicy.web }}
{{- end }}
{{- end }}

{{- /* Notes about the files of a handler. Arguments: key, handlers, offers (whether it has the family
       files), values. */ -}}
{{- define "rockbot.tool-handler.notes" -}}
{{- if and .offers .values.allowBash }}

{{ .handlers }} offers bash, which is not a sandbox: commands have all permissions of the pod.
{{- end }}
{{- if and .offers (not .values.work.claim.enabled) (not .values.work.existingClaim) }}

The files of tools{{ if ne .key "toolHandler" }} of this pool{{ end }} are lost with their pod, and each replica has its own: see {{ .key }}.work.
{{- end }}
{{- end }}

{{- /* What the schema can't say, in words for whoever installs. */ -}}
{{- define "rockbot.checks" -}}
{{- $problems := list -}}
{{- if and (eq .Values.profile "production") (eq .Values.rabbitmq.mode "embedded") -}}
{{- $problems = append $problems "rabbitmq.mode: the embedded broker is for a trial and has no TLS, which profile production insists on; set profile: development, or use a broker of your own" -}}
{{- end -}}
{{- if and (eq .Values.profile "production") (eq .Values.rabbitmq.mode "operator") (not .Values.rabbitmq.operator.tlsSecret) -}}
{{- $problems = append $problems "rabbitmq.operator.tlsSecret: profile production insists on TLS; name the secret with the broker's certificate" -}}
{{- end -}}
{{- $suffixes := list -}}
{{- range .Values.agents -}}
{{- $suffix := include "rockbot.agent.suffix" . -}}
{{- if has $suffix $suffixes -}}
{{- $problems = append $problems (printf "agents: two agents would have objects of the name %s" $suffix) -}}
{{- end -}}
{{- $suffixes = append $suffixes $suffix -}}
{{- $config := .config | default $.Values.agent.config -}}
{{- if not (or $.Values.model.existingSecret $.Values.model.baseUrl (contains "[llm]" $config)) -}}
{{- $problems = append $problems (printf "model: agent %s has no model; set model.existingSecret, model.baseUrl, or [llm] in its config" .name) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.scriptsManager.enabled (eq (include "rockbot.scripts.namespace" .) .Release.Namespace) -}}
{{- $problems = append $problems "scriptsManager.namespace.name: scripts have no network, so they need a namespace of their own" -}}
{{- end -}}
{{- if and .Values.toolHandler.enabled (eq .Values.toolHandler.work.claim.accessMode "ReadWriteOnce") .Values.toolHandler.work.claim.enabled -}}
{{- if or (gt (int .Values.toolHandler.replicas) 1) (ne .Values.toolHandler.autoscaling.kind "none") -}}
{{- $problems = append $problems "toolHandler.work.claim.accessMode: several handlers need ReadWriteMany, or no claim" -}}
{{- end -}}
{{- end -}}
{{- if $problems -}}
{{- fail (printf "\n\n  - %s\n" (join "\n  - " $problems)) -}}
{{- end -}}
{{- end }}

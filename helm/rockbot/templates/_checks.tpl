{{- /* Checks that the schema cannot express. */ -}}
{{- define "rockbot.checks" -}}
{{- $problems := list -}}
{{- if and (eq .Values.profile "production") (eq .Values.rabbitmq.mode "embedded") -}}
{{- $problems = append $problems "rabbitmq.mode: the embedded broker has no TLS, which profile production requires; set profile: development, or use another broker" -}}
{{- end -}}
{{- if and (eq .Values.profile "production") (eq .Values.postgresql.mode "embedded") -}}
{{- $problems = append $problems "postgresql.mode: the embedded database has no TLS, which profile production requires; set profile: development, or use another database" -}}
{{- end -}}
{{- if and (eq .Values.profile "production") (eq .Values.rabbitmq.mode "operator") (not .Values.rabbitmq.operator.tlsSecret) -}}
{{- $problems = append $problems "rabbitmq.operator.tlsSecret: profile production requires TLS; set the secret with the broker's certificate" -}}
{{- end -}}
{{- $suffixes := list -}}
{{- range .Values.agents -}}
{{- $suffix := include "rockbot.agent.suffix" . -}}
{{- if has $suffix $suffixes -}}
{{- $problems = append $problems (printf "agents: two agents have the object name %s; rename one of them" $suffix) -}}
{{- end -}}
{{- $suffixes = append $suffixes $suffix -}}
{{- $config := .config | default $.Values.agent.config -}}
{{- if not (or $.Values.model.existingSecret $.Values.model.baseUrl (contains "[llm]" $config)) -}}
{{- $problems = append $problems (printf "model: agent %s has no model; set model.existingSecret, model.baseUrl, or [llm] in its config" .name) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.scriptsManager.enabled (eq (include "rockbot.scripts.namespace" .) .Release.Namespace) -}}
{{- $problems = append $problems "scriptsManager.namespace.name: scripts need a separate namespace, because its pods have no network" -}}
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

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
{{- with include "rockbot.checks.model" . -}}
{{- $problems = append $problems . -}}
{{- end -}}
{{- if and .Values.mcpBridge.enabled (not .Values.mcpBridge.serversSecret) (not .Values.mcpBridge.image) -}}
{{- range $name, $server := .Values.mcpBridge.servers -}}
{{- $mounted := and (hasPrefix "/" ($server.command | default "")) $.Values.mcpBridge.extraVolumeMounts -}}
{{- if and $server.command (not $mounted) -}}
{{- $problems = append $problems (printf "mcpBridge.servers.%s: the image of the bridge contains no programs, so no %s; build an image with it and set mcpBridge.image" $name $server.command) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $problems -}}
{{- fail (printf "\n\n  - %s\n" (join "\n  - " $problems)) -}}
{{- end -}}
{{- end }}

{{- /* Not empty if no network policy lets an agent reach model.baseUrl. */ -}}
{{- define "rockbot.checks.model" -}}
{{- if and .Values.networkPolicy.enabled .Values.model.baseUrl (not .Values.agent.extraEgress) -}}
{{- $rule := .Values.networkPolicy.model -}}
{{- $url := urlParse .Values.model.baseUrl -}}
{{- $plain := eq $url.scheme "http" -}}
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) | default (ternary "80" "443" $plain) | int -}}
{{- $ports := list -}}
{{- range $rule.ports -}}{{- $ports = append $ports (int .) -}}{{- end -}}
{{- $private := regexMatch "^(10\\.|127\\.|169\\.254\\.|192\\.168\\.|172\\.(1[6-9]|2[0-9]|3[01])\\.|[^.]+$)|\\.(svc|local|internal)$" (regexReplaceAll ":[0-9]+$" $url.host "") -}}
{{- $public := gt (len $rule.to) 0 -}}
{{- range $rule.to -}}
{{- if not (and .ipBlock (has "10.0.0.0/8" (.ipBlock.except | default list))) -}}{{- $public = false -}}{{- end -}}
{{- end -}}
{{- if not (has $port $ports) -}}
{{- printf "networkPolicy.model.ports: agents cannot reach model.baseUrl without port %d; add it, and the server to networkPolicy.model.to" $port -}}
{{- else if and $public (or $plain $private) -}}
{{- printf "networkPolicy.model.to: it permits public addresses only, and model.baseUrl is inside a network; add the server" -}}
{{- end -}}
{{- end -}}
{{- end }}

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
{{- if and .toolOnly (not .definition) -}}
{{- $problems = append $problems (printf "agents: the agent %s is only a tool and has no definition; add one" .name) -}}
{{- end -}}
{{- if not .toolOnly -}}
{{- $values := mergeOverwrite (deepCopy $.Values.agent) (omit . "name" "definition" "documents") -}}
{{- $several := or (gt (int $values.replicas) 1) (ne $values.autoscaling.kind "none") -}}
{{- if and $several (eq $.Values.postgresql.mode "memory") -}}
{{- $problems = append $problems (printf "agents: the agent %s has several replicas, and without a database each would have its own conversations; set another postgresql.mode, or replicas: 1 without autoscaling" .name) -}}
{{- end -}}
{{- $llm := $values.settings.llm | default dict -}}
{{- if not (or $.Values.model.existingSecret $.Values.model.baseUrl $llm.base_url $llm.provider (contains "[llm]" ($values.config | default ""))) -}}
{{- $problems = append $problems (printf "model: agent %s has no model; set model.existingSecret, model.baseUrl, or llm in its settings" .name) -}}
{{- end -}}
{{- $problems = concat $problems (include "rockbot.checks.settings" (dict "key" (printf "agents.%s" .name) "values" $values) | fromJsonArray) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.scriptsManager.enabled (eq (include "rockbot.scripts.namespace" .) .Release.Namespace) -}}
{{- $problems = append $problems "scriptsManager.namespace.name: scripts need a separate namespace, because its pods have no network" -}}
{{- end -}}
{{- $problems = concat $problems (include "rockbot.checks.handlers" . | fromJsonArray) -}}
{{- $problems = concat $problems (include "rockbot.checks.gateway" . | fromJsonArray) -}}
{{- range $key := list "mcpBridge" "scriptsManager" "openrouterMcp" "gateway" -}}
{{- $values := get $.Values $key -}}
{{- if $values.enabled -}}
{{- $problems = concat $problems (include "rockbot.checks.settings" (dict "key" $key "values" $values) | fromJsonArray) -}}
{{- end -}}
{{- end -}}
{{- with include "rockbot.checks.model" . -}}
{{- $problems = append $problems . -}}
{{- end -}}
{{- $problems = concat $problems (include "rockbot.checks.egress" . | fromJsonArray) -}}
{{- with .Values.mcpBridge -}}
{{- if and .enabled .serversSecret (or .servers .queues .toolTimeout .traceMCP) -}}
{{- $problems = append $problems "mcpBridge.serversSecret: the file in the Secret replaces servers, queues, toolTimeout and traceMCP; write them into that file" -}}
{{- else if .enabled -}}
{{- $configured := dig "handler" "queues" dict .settings -}}
{{- range $name, $queue := .queues -}}
{{- if hasKey $configured $name -}}
{{- $problems = append $problems (printf "mcpBridge.queues.%s: it is also in mcpBridge.settings.handler.queues; keep one of them" $name) -}}
{{- end -}}
{{- end -}}
{{- $queues := merge (dict) .queues $configured -}}
{{- /* These may define queues too. */ -}}
{{- $has_more := or .config .extraEnv .extraEnvFrom -}}
{{- range $name, $server := .servers -}}
{{- if and $server.queue (not $has_more) (not (hasKey $queues $server.queue)) -}}
{{- $problems = append $problems (printf "mcpBridge.servers.%s.queue: %s is unknown; define it in mcpBridge.queues" $name $server.queue) -}}
{{- end -}}
{{- end -}}
{{- end -}}
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

{{- /* Problems of the rules for an external broker and database, as a JSON list. */ -}}
{{- define "rockbot.checks.egress" -}}
{{- $problems := list -}}
{{- if .Values.networkPolicy.enabled -}}
{{- range $name, $mode := dict "broker" .Values.rabbitmq.mode "store" .Values.postgresql.mode -}}
{{- $rule := get $.Values.networkPolicy $name -}}
{{- if and (eq $mode "external") (not $rule.to) -}}
{{- $problems = append $problems (printf "networkPolicy.%s.to: it is empty, so pods, and commands of tools in them, could connect to port %s of any address; set it to the address of your server, or, if you mean any address, to [{ipBlock: {cidr: 0.0.0.0/0}}], with {ipBlock: {cidr: \"::/0\"}} for IPv6" $name (join ", " $rule.ports)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end }}

{{- /* Problems of toolHandler and toolHandlers, as a JSON list. */ -}}
{{- define "rockbot.checks.handlers" -}}
{{- $problems := list -}}
{{- $names := list -}}
{{- $serving := dict -}}
{{- $handlers := list -}}
{{- if .Values.toolHandler.enabled -}}
{{- $handlers = append $handlers (dict "key" "toolHandler" "families" (list "files" "scripts") "values" .Values.toolHandler) -}}
{{- end -}}
{{- range .Values.toolHandlers -}}
{{- $key := printf "toolHandlers.%s" .name -}}
{{- if has .name $names -}}
{{- $problems = append $problems (printf "toolHandlers: two pools have the name %s; rename one of them" .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- $object := printf "%s-%s" (include "rockbot.fullname" $) (include "rockbot.tool-handler.component" .name) -}}
{{- if gt (len $object) 63 -}}
{{- $problems = append $problems (printf "%s: the object name %s is longer than 63 characters; shorten the pool's name, or set fullnameOverride" $key $object) -}}
{{- end -}}
{{- $handlers = append $handlers (dict "key" $key "families" .families "pool" true "values" (mergeOverwrite (deepCopy $.Values.toolHandlerPool) .)) -}}
{{- end -}}
{{- range $handler := $handlers -}}
{{- with include "rockbot.checks.work" . -}}{{- $problems = append $problems . -}}{{- end -}}
{{- $problems = concat $problems (include "rockbot.checks.settings" . | fromJsonArray) -}}
{{- if .pool -}}{{- $problems = concat $problems (include "rockbot.checks.pool" . | fromJsonArray) -}}{{- end -}}
{{- range $family := .families -}}
{{- $other := get $serving $family -}}
{{- if and $other (ne $family "rest") -}}
{{- $problems = append $problems (printf "%s.families: %s has the same tools of the family %s, and agents use those of one pool only; remove the family from one of them%s" $handler.key $other $family (eq $other "toolHandler" | ternary ", or set toolHandler.enabled to false" "")) -}}
{{- end -}}
{{- $_ := set $serving $family $handler.key -}}
{{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end }}

{{- /* The problem of a handler's working directory, or nothing. */ -}}
{{- define "rockbot.checks.work" -}}
{{- $claim := .values.work.claim -}}
{{- if and (has "files" .families) (eq $claim.accessMode "ReadWriteOnce") $claim.enabled -}}
{{- if or (gt (int .values.replicas) 1) (ne .values.autoscaling.kind "none") -}}
{{- printf "%s.work.claim.accessMode: several handlers need ReadWriteMany, or no claim" .key -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* Problems of a pool, as a JSON list. */ -}}
{{- define "rockbot.checks.pool" -}}
{{- $problems := list -}}
{{- $outside := or (has "web" .families) (has "rest" .families) -}}
{{- if and $outside (eq .values.egress "none") -}}
{{- $problems = append $problems (printf "%s.egress: the families web and rest need connections to servers; set web, or custom with extraEgress" .key) -}}
{{- end -}}
{{- if and (eq .values.egress "none") .values.extraEgress -}}
{{- $problems = append $problems (printf "%s.extraEgress: the egress none permits broker and database only; set egress to custom" .key) -}}
{{- end -}}
{{- if and (eq .values.egress "custom") (not .values.extraEgress) -}}
{{- $problems = append $problems (printf "%s.extraEgress: the egress custom needs rules" .key) -}}
{{- end -}}
{{- if and $outside (has "files" .families) .values.allowBash -}}
{{- $problems = append $problems (printf "%s.families: bash of the family files could read the keys of web and rest; use two pools, or set allowBash to false" .key) -}}
{{- end -}}
{{- $rest := or .values.rest .values.restSecret -}}
{{- if and .values.rest .values.restSecret -}}
{{- $problems = append $problems (printf "%s.restSecret: set either rest or restSecret" .key) -}}
{{- end -}}
{{- if and $rest (not (has "rest" .families)) -}}
{{- $problems = append $problems (printf "%s.rest: the pool does not serve the family rest; add it to families" .key) -}}
{{- end -}}
{{- if and (has "rest" .families) (not $rest) (not (contains "[rest]" (include "rockbot.config" .values))) -}}
{{- $problems = append $problems (printf "%s.rest: the family rest has no tools; set rest, restSecret, or rest in settings" .key) -}}
{{- end -}}
{{- toJson $problems -}}
{{- end }}

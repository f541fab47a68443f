{{- /* The configuration file of a process, from its values settings and config. */ -}}

{{- /* A value in TOML, on one line. Numbers of values are floats, which TOML distinguishes from integers:
       JSON writes whole ones without a point. */ -}}
{{- define "rockbot.toml" -}}
{{- if kindIs "map" . -}}
{{- $entries := list -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $entries = append $entries (printf "%s = %s" (include "rockbot.toml.key" $key) (include "rockbot.toml" $value)) -}}
{{- end -}}
{{- end -}}
{{ printf "{%s}" (join ", " $entries) }}
{{- else if kindIs "slice" . -}}
{{- $items := list -}}
{{- range . -}}
{{- $items = append $items (include "rockbot.toml" .) -}}
{{- end -}}
{{ printf "[%s]" (join ", " $items) }}
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end }}

{{- define "rockbot.toml.key" -}}
{{- regexMatch "^[A-Za-z0-9_-]+$" . | ternary . (toJson .) -}}
{{- end }}

{{- /* The file; empty without both. The keys of config that are in no section must be first.
       Argument: the values of the process. */ -}}
{{- define "rockbot.config" -}}
{{- with .config }}
{{- printf "%s\n" (trimSuffix "\n" .) }}
{{- end }}
{{- range $section, $keys := .settings }}
{{- printf "[%s]\n" $section }}
{{- range $key, $value := $keys }}
{{- if not (kindIs "invalid" $value) }}
{{- printf "%s = %s\n" (include "rockbot.toml.key" $key) (include "rockbot.toml" $value) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Sections of settings that config has too: TOML permits a section once. Arguments: key, values. */ -}}
{{- define "rockbot.checks.settings" -}}
{{- $problems := list -}}
{{- range $section, $_ := .values.settings -}}
{{- if regexMatch (printf "(?m)^\\s*\\[+\\s*%s\\s*[].]" $section) ($.values.config | default "") -}}
{{- $problems = append $problems (printf "%s.settings.%s: config has a section [%s] too; move its keys to settings" $.key $section $section) -}}
{{- end -}}
{{- end -}}
{{ toJson $problems }}
{{- end }}

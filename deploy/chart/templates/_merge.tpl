{{/*
flagstaff.merge lays `patch` over `base`, two maps, as a strategic merge does: maps key by key, lists by the names of
their entries, and what has no name is appended. The result is YAML.
*/}}
{{- define "flagstaff.merge" -}}
{{- $merged := deepCopy .base -}}
{{- range $key, $new := .patch -}}
  {{- $old := get $merged $key -}}
  {{- if and (kindIs "map" $new) (kindIs "map" $old) -}}
    {{- $_ := set $merged $key (include "flagstaff.merge" (dict "base" $old "patch" $new) | fromYaml) -}}
  {{- else if and (kindIs "slice" $new) (kindIs "slice" $old) -}}
    {{- $_ := set $merged $key (include "flagstaff.mergeLists" (dict "base" $old "patch" $new) | fromYamlArray) -}}
  {{- else -}}
    {{- $_ := set $merged $key $new -}}
  {{- end -}}
{{- end -}}
{{- toYaml $merged -}}
{{- end -}}

{{- define "flagstaff.mergeLists" -}}
{{- $merged := list -}}
{{- $names := list -}}
{{- range $entry := .base -}}
  {{- $result := $entry -}}
  {{- if kindIs "map" $entry -}}
    {{- range $new := $.patch -}}
      {{- if and (kindIs "map" $new) (hasKey $new "name") (eq (get $new "name") (get $entry "name")) -}}
        {{- $names = append $names (get $new "name") -}}
        {{- $result = include "flagstaff.merge" (dict "base" $entry "patch" $new) | fromYaml -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- $merged = append $merged $result -}}
{{- end -}}
{{- range $new := .patch -}}
  {{- if not (and (kindIs "map" $new) (has (get $new "name") $names)) -}}
    {{- $merged = append $merged $new -}}
  {{- end -}}
{{- end -}}
{{- toYaml $merged -}}
{{- end -}}

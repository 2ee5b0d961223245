{{/* flagstaff.selecting is `object`, a Deployment of which reconciles only what `selector` selects. */}}
{{- define "flagstaff.selecting" -}}
{{- if eq .object.kind "Deployment" -}}
  {{- $env := list (dict "name" "FLAGSTAFF_WATCH_LABEL_SELECTOR" "value" .selector) -}}
  {{- $pod := dict "containers" (list (dict "name" "controller" "env" $env)) -}}
  {{- include "flagstaff.merge" (dict "base" .object "patch" (dict "spec" (dict "template" (dict "spec" $pod)))) -}}
{{- else -}}
  {{- toYaml .object -}}
{{- end -}}
{{- end -}}

{{/* flagstaff.shard is the copy of `object` for the controller of `shard`: its name and its pods' have the shard's behind them, as its Lease has. */}}
{{- define "flagstaff.shard" -}}
{{- range $option := list "lease-name" "artifact-address" "watch-label-selector" -}}
  {{- if hasKey $.root.Values.controller.settings $option -}}
    {{- fail (printf "controller.settings.%s would be the same for every shard: leave it out beside sharding.shards" $option) -}}
  {{- end -}}
{{- end -}}
{{- $named := printf "flagstaff-controller-%s" .shard -}}
{{- $object := toYaml .object
  | replace "app.kubernetes.io/name: flagstaff-controller" (printf "app.kubernetes.io/name: %s" $named)
  | replace "flagstaff.dev/leader: flagstaff-controller" (printf "flagstaff.dev/leader: %s" $named)
  | fromYaml -}}
{{- $_ := set $object.metadata "name" (printf "%s-%s" $object.metadata.name .shard) -}}
{{- include "flagstaff.selecting" (dict "object" $object "selector" (printf "sharding.fluxcd.io/key=%s" .shard)) -}}
{{- end -}}

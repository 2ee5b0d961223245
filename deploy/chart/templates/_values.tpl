{{/* flagstaff.image is the image of `name`, controller or evaluator. */}}
{{- define "flagstaff.image" -}}
{{- $image := get .root.Values.image .name -}}
{{- printf "%s:%s" $image.repository ($image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}

{{/* flagstaff.manifest is a file of deploy/ with the namespace and the images of this release. */}}
{{- define "flagstaff.manifest" -}}
{{- .root.Files.Get .path
  | replace "flagstaff-system" .root.Release.Namespace
  | replace "registry.example/flagstaff-controller:0.1.0" (include "flagstaff.image" (dict "root" .root "name" "controller"))
  | replace "registry.example/flagstaff-evaluator:0.1.0" (include "flagstaff.image" (dict "root" .root "name" "evaluator")) -}}
{{- end -}}

{{/* flagstaff.patch is what the values change of the Deployment or DaemonSet of `name`. */}}
{{- define "flagstaff.patch" -}}
{{- $values := get .root.Values .name -}}
{{- $env := list -}}
{{- range $option, $value := $values.settings -}}
  {{- $env = append $env (dict "name" (printf "FLAGSTAFF_%s" ($option | upper | replace "-" "_")) "value" (toString $value)) -}}
{{- end -}}
{{- $container := merge (dict "name" .name) (deepCopy $values.container) -}}
{{- if $env -}}{{- $_ := set $container "env" (concat ($container.env | default list) $env) -}}{{- end -}}
{{- with .root.Values.image.pullPolicy -}}{{- $_ := set $container "imagePullPolicy" . -}}{{- end -}}
{{- $pod := merge (dict "containers" (list $container)) (deepCopy $values.pod) -}}
{{- with .root.Values.imagePullSecrets -}}{{- $_ := set $pod "imagePullSecrets" . -}}{{- end -}}
{{- $template := dict "spec" $pod -}}
{{- with $values.podAnnotations -}}{{- $_ := set $template "metadata" (dict "annotations" .) -}}{{- end -}}
{{- $spec := dict "template" $template -}}
{{- if not (kindIs "invalid" $values.replicas) -}}{{- $_ := set $spec "replicas" $values.replicas -}}{{- end -}}
{{- toYaml (dict "spec" $spec) -}}
{{- end -}}

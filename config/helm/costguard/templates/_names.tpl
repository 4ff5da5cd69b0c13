{{- define "costguard.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}-costguard
{{- end }}

{{- define "costguard.labels" -}}
app.kubernetes.io/name: costguard
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

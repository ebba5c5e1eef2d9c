{{- define "arkline.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "arkline.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "arkline.labels" -}}
{{ include "arkline.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "arkline.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "arkline.secret" -}}
{{ .Values.existingSecret | default (printf "%s-fleet" (include "arkline.name" .)) }}
{{- end }}

{{- define "arkline.flowerSecret" -}}
{{ .Values.flower.existingSecret | default (printf "%s-flower" (include "arkline.name" .)) }}
{{- end }}

{{- define "arkline.zookeepers" -}}
{{- if .Values.zookeeper.enabled }}
{{- $name := printf "%s-zookeeper" (include "arkline.name" .) }}
{{- range $number := until (int .Values.zookeeper.replicas) }}
{{- if $number }},{{ end }}{{ $name }}-{{ $number }}.{{ $name }}:{{ ternary 2281 2181 $.Values.tls.enabled }}
{{- end }}
{{- else }}{{ .Values.zookeeper.hosts }}{{ end }}
{{- end }}

{{/* Not empty if servers of the chart have certificates of its own authority. */}}
{{- define "arkline.tls" -}}
{{- if and .Values.tls.enabled (or .Values.zookeeper.enabled .Values.redis.enabled) }}true{{ end }}
{{- end }}

{{/* The volume with what clients trust. */}}
{{- define "arkline.trust" -}}
{{- if include "arkline.tls" . -}}
- name: trust
  secret:
    secretName: {{ include "arkline.name" . }}-certificates-trust
    defaultMode: 0444
{{- end }}
{{- end }}

{{/* The volumes of a server; call with the context and the server. */}}
{{- define "arkline.serverVolumes" -}}
- name: certificates
  secret:
    secretName: {{ include "arkline.name" (index . 0) }}-certificates-{{ index . 1 }}
    defaultMode: 0440
- name: serve
  configMap:
    name: {{ include "arkline.name" (index . 0) }}-tls
{{- end }}

{{- define "arkline.serverMounts" -}}
- {name: certificates, mountPath: /run/certificates, readOnly: true}
- {name: serve, mountPath: /etc/arkline-tls, readOnly: true}
{{- end }}

{{/* What every pod has: no rights, no token of the cluster, no variables of its Services (some would be settings), its place. */}}
{{- define "arkline.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Call with the number of the user and the group. */}}
{{- define "arkline.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ index . 0 }}
  runAsGroup: {{ index . 1 }}
  fsGroup: {{ index . 1 }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{/* Call with whether the root file system is read only. */}}
{{- define "arkline.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: {{ . }}
  capabilities:
    drop: [ALL]
{{- end }}

{{/* The container of a program that works on the record. */}}
{{- define "arkline.fleetContainer" -}}
image: {{ include "arkline.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{ include "arkline.containerSecurity" true }}
envFrom:
  - configMapRef:
      name: {{ include "arkline.name" . }}-settings
env:
  - name: ARKLINE_READY_FILE
    value: /tmp/ready
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  - {name: secrets, mountPath: /run/arkline, readOnly: true}
  {{- if include "arkline.tls" . }}
  - {name: trust, mountPath: /run/trust, readOnly: true}
  {{- end }}
  - {name: profiles, mountPath: /etc/arkline/profiles, readOnly: true}
  - {name: data, mountPath: /srv/arkline}
{{- end }}

{{/* The secrets of a worker as JSON; call with its queues, none of them for all. */}}
{{- define "arkline.workerSecrets" -}}
{{- $secrets := list "inventory_url" }}
{{- range $queue, $own := dict "control" (list "smtp_password") "io" (list "callback_secret" "smtp_password") "process" (list "ezid_password") }}
{{- if or (empty $) (has $queue $) }}{{ $secrets = concat $secrets $own }}{{ end }}
{{- end }}
{{- $secrets | uniq | toJson }}
{{- end }}

{{/* Call with the context, and the secrets that the process needs beside those of ZooKeeper and Redis. */}}
{{- define "arkline.fleetVolumes" -}}
{{- $more := index . 1 }}
{{- with index . 0 }}
volumes:
  - name: tmp
    emptyDir: {sizeLimit: 1Gi}
  - name: secrets
    secret:
      secretName: {{ include "arkline.secret" . }}
      defaultMode: 0440
      optional: true # what the site does not use is not there
      items:
        {{- range concat (list "zk_password" "broker_url") $more }}
        - {key: arkline_{{ . }}, path: arkline_{{ . }}}
        {{- end }}
  {{- include "arkline.trust" . | nindent 2 }}
  - name: profiles
    configMap:
      name: {{ .Values.existingProfiles | default (printf "%s-profiles" (include "arkline.name" .)) }}
  - name: data
    persistentVolumeClaim:
      claimName: {{ .Values.data.existingClaim | default (printf "%s-data" (include "arkline.name" .)) }}
{{- end }}
{{- end }}

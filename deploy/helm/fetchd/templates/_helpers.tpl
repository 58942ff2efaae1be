{{/* metadata NAME ROOT: the name and the labels of an object. Pods are selected by app.kubernetes.io/name alone. */}}
{{- define "metadata" -}}
{{- $root := index . 1 -}}
name: {{ index . 0 }}
labels:
  app.kubernetes.io/name: {{ index . 0 }}
  app.kubernetes.io/instance: {{ $root.Release.Name }}
  app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ $root.Release.Service }}
  helm.sh/chart: {{ $root.Chart.Name }}-{{ $root.Chart.Version }}
{{- end }}

{{/* image IMAGE ROOT: the image of a container. */}}
{{- define "image" -}}
{{- $image := index . 0 -}}
image: {{ $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default (index . 1).Chart.AppVersion }}{{ end }}
imagePullPolicy: {{ $image.pullPolicy }}
{{- end }}

{{/* account NAME ROOT: a ServiceAccount. No program here uses the API server. */}}
{{- define "account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "metadata" . | nindent 2 }}
automountServiceAccountToken: false
{{- end }}

{{/* budget NAME ROOT: draining a node stops one replica at a time. */}}
{{- define "budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  # A pod that is not ready serves no calls, so it must not delay the drain.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ index . 0 }}
{{- end }}

{{/* pod NAME ROOT: what all pods have. */}}
{{- define "pod" -}}
{{- $values := (index . 1).Values -}}
serviceAccountName: {{ index . 0 }}
automountServiceAccountToken: false
# Otherwise a Service named fetchd adds variables such as FETCHD_PORT to the environment, from which fetchd
# reads its settings.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- range $field := list "imagePullSecrets" "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- with get $values $field }}
{{ toYaml (dict $field .) }}
{{- end }}
{{- end }}
{{- end }}

{{/* spread NAME KEY…: spreads the pods over zones or nodes. */}}
{{- define "spread" -}}
topologySpreadConstraints:
{{- $name := first . }}
{{- range rest . }}
  - topologyKey: {{ . }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        app.kubernetes.io/name: {{ $name }}
{{- end }}
{{- end }}

{{- define "confined" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: ["ALL"]
{{- end }}

{{/* peers FROM PEERS PORT…: a rule of a NetworkPolicy, or none if there are no peers: an empty list would stand for everyone. */}}
{{- define "peers" -}}
{{- $peers := index . 1 -}}
{{- if $peers }}
- {{ index . 0 }}:
    {{- toYaml $peers | nindent 4 }}
  ports:
  {{- range slice . 2 }}
    - port: {{ . }}
      protocol: TCP
  {{- end }}
{{- end }}
{{- end }}

{{- define "dns" -}}
{{- with . }}
- to:
    {{- toYaml . | nindent 4 }}
  ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
{{- end }}
{{- end }}

{{- define "dsn" -}}
- name: FRONTIER_DB
  valueFrom:
    secretKeyRef:
      name: {{ .Values.database.secretName }}
      key: {{ .Values.database.key }}
{{- end }}

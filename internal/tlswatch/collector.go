package tlswatch

import "github.com/prometheus/client_golang/prometheus"

// Collector has the metrics of a [Watch] and of [Handshakes].
type Collector struct {
	watch               *Watch
	handshakes          *Handshakes
	notBefore, notAfter *prometheus.Desc
	failed              *prometheus.Desc
}

// NewCollector returns the metrics of a program. Their names begin with its prefix, such as "fetchd". A
// nil watch has no certificates, and nil handshakes have no failures.
func NewCollector(prefix string, watch *Watch, handshakes *Handshakes) *Collector {
	labels := []string{"use", "name", "serial"}
	return &Collector{watch: watch, handshakes: handshakes,
		notBefore: prometheus.NewDesc(prefix+"_certificate_not_before_timestamp_seconds", "Start of validity of each certificate in use, in seconds since 1970.", labels, nil),
		notAfter:  prometheus.NewDesc(prefix+"_certificate_not_after_timestamp_seconds", "End of validity of each certificate in use, in seconds since 1970.", labels, nil),
		failed:    prometheus.NewDesc(prefix+"_tls_handshake_failures_total", "TLS handshakes of callers that failed, by cause.", []string{"cause"}, nil)}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	to <- c.notBefore
	to <- c.notAfter
	to <- c.failed
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	if c.watch != nil {
		for _, cert := range c.watch.Certificates() {
			to <- prometheus.MustNewConstMetric(c.notBefore, prometheus.GaugeValue, float64(cert.NotBefore.Unix()), string(cert.Use), cert.Name, cert.Serial)
			to <- prometheus.MustNewConstMetric(c.notAfter, prometheus.GaugeValue, float64(cert.NotAfter.Unix()), string(cert.Use), cert.Name, cert.Serial)
		}
	}
	if c.handshakes != nil {
		for _, cause := range Causes {
			to <- prometheus.MustNewConstMetric(c.failed, prometheus.CounterValue, float64(c.handshakes.failed[cause].Load()), string(cause))
		}
	}
}

// Command metrics prints the metrics that workers and the API register, as JSON. The module
// tools does not import the product, so its tests run this in the product's module.
package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"fetchd/frontier"
	"fetchd/frontier/api"
	"fetchd/frontier/store"
	"fetchd/internal/tlswatch"
)

// vocabulary is what an expression may name.
type vocabulary struct {
	Metrics map[string][]string // their labels, and "histogram" for one
	Values  map[string][]string // of labels that have no others
}

// described is how a description shows itself: it has no accessors.
var described = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", .*variableLabels: \{([^{}]*)\}\}$`)

// registry notes what is registered with it. A metric with labels that has
// counted nothing is gathered from no registry, but it is described.
type registry struct {
	*prometheus.Registry
	descriptions []description
}

type description struct {
	text      string
	histogram bool
}

// MustRegister implements [prometheus.Registerer].
func (r *registry) MustRegister(collectors ...prometheus.Collector) {
	for _, c := range collectors {
		_, histogram := c.(*prometheus.HistogramVec)
		texts := make(chan *prometheus.Desc)
		go func() {
			defer close(texts)
			c.Describe(texts)
		}()
		for d := range texts {
			r.descriptions = append(r.descriptions, description{d.String(), histogram})
		}
	}
	r.Registry.MustRegister(collectors...)
}

func (v *vocabulary) describe(all []description) error {
	for _, d := range all {
		m := described.FindStringSubmatch(d.text)
		if m == nil {
			return fmt.Errorf("no name and labels are found in %q", d.text)
		}
		labels := strings.FieldsFunc(m[2], func(c rune) bool { return c == ',' })
		if d.histogram {
			labels = append(labels, "histogram")
		}
		v.Metrics[m[1]] = labels
	}
	return nil
}

// gather notes the values of labels that the gauges have.
func (v *vocabulary) gather(r *prometheus.Registry) error {
	families, err := r.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if known := v.Values[l.GetName()]; !slices.Contains(known, l.GetValue()) {
					v.Values[l.GetName()] = append(known, l.GetValue())
				}
			}
		}
	}
	return nil
}

func run() error {
	r := &registry{Registry: prometheus.NewRegistry()}
	v := vocabulary{map[string][]string{}, map[string][]string{"error_class": frontier.Classes()}}
	frontier.NewMetrics(r).Counted(store.Counts{})
	api.NewMetrics(r)
	watch := tlswatch.NewWatch(slog.New(slog.DiscardHandler))
	r.MustRegister(tlswatch.NewCollector("frontier_api", watch, tlswatch.NewHandshakes(slog.New(slog.DiscardHandler), func() bool { return false })))
	for _, use := range []tlswatch.Use{tlswatch.Service, tlswatch.ServiceChain, tlswatch.ClientAuthority} {
		v.Values["use"] = append(v.Values["use"], string(use))
	}
	if err := v.describe(r.descriptions); err != nil {
		return err
	}
	if err := v.gather(r.Registry); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(v)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

package site_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/internal/site"
)

func TestRate(t *testing.T) {
	t.Parallel()
	visits := []site.Visit{
		visit("a", "/1", 999, 1000, site.First),
		visit("a", "/2", 1000, 1100, site.First),
		visit("b", "/1", 1999, 2299, site.First),
		visit("a", "/3", 2000, 0, site.First),
		visit("a", "/4", 3499, 3699, site.First),
		visit("a", "/5", 3500, 3600, site.First),
	}
	const s = time.Second
	for _, tc := range []struct {
		name      string
		tally     site.Tally
		want      site.Tally
		perSecond float64
	}{
		{
			"between", site.Rate(visits, s, 3500*ms),
			site.Tally{
				From: s, To: 3500 * ms, All: 4, Hosts: map[string]int{"a": 3, "b": 1}, Seconds: []int{2, 1, 1}, Mean: 200 * ms,
			},
			1.6,
		},
		{
			"whole seconds", site.Rate(visits, s, 3*s),
			site.Tally{From: s, To: 3 * s, All: 3, Hosts: map[string]int{"a": 2, "b": 1}, Seconds: []int{2, 1}, Mean: 200 * ms},
			1.5,
		},
		{
			"none in it", site.Rate(visits, 4*s, 5*s),
			site.Tally{From: 4 * s, To: 5 * s, Hosts: map[string]int{}, Seconds: []int{0}},
			0,
		},
		{
			"none that has ended", site.Rate(visits, 2*s, 3*s),
			site.Tally{From: 2 * s, To: 3 * s, All: 1, Hosts: map[string]int{"a": 1}, Seconds: []int{1}},
			1,
		},
		{
			"backwards", site.Rate(visits, 3*s, s),
			site.Tally{From: 3 * s, To: 3 * s, Hosts: map[string]int{}, Seconds: []int{}},
			0,
		},
		{
			"steady", site.Steady(visits, 1*ms, 500*ms),
			site.Tally{From: s, To: 3 * s, All: 3, Hosts: map[string]int{"a": 2, "b": 1}, Seconds: []int{2, 1}, Mean: 200 * ms},
			1.5,
		},
		{
			"steady, nothing left", site.Steady(visits, 2*s, 2*s),
			site.Tally{From: 2999 * ms, To: 2999 * ms, Hosts: map[string]int{}, Seconds: []int{}},
			0,
		},
		{
			"steady, of none", site.Steady(nil, s, s),
			site.Tally{Hosts: map[string]int{}, Seconds: []int{}},
			0,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, tc.tally); diff != "" {
				t.Errorf("tally (-want +got):\n%s", diff)
			}
			if got := tc.tally.PerSecond(); got != tc.perSecond {
				t.Errorf("PerSecond() = %v, want %v", got, tc.perSecond)
			}
		})
	}
}

func TestIdeal(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		hosts       int
		delay, mean time.Duration
		want        float64
	}{
		{"delay alone", 100, time.Second, 0, 100},
		{"delay and duration", 100, time.Second, time.Second, 50},
		{"duration alone", 10, 0, 100 * ms, 100},
		{"no hosts", 0, time.Second, 0, 0},
		{"no bound", 10, 0, 0, 0},
	} {
		if got := site.Ideal(tc.hosts, tc.delay, tc.mean); got != tc.want {
			t.Errorf("%s: Ideal(%d, %v, %v) = %v, want %v", tc.name, tc.hosts, tc.delay, tc.mean, got, tc.want)
		}
	}
}

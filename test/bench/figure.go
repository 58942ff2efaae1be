package main

import (
	"time"

	"fetchd/test/bench/caller"
)

// run is the result of one load.
type run struct {
	caller.Result
	service, origin time.Duration // CPU time; service is 0 if there was no service
	peak            int64         // peak memory in bytes, of the service or else of the caller
	allocs, bytes   float64       // heap allocations per fetch of the same process; 0 if unknown
	held            float64       // bytes per fetch that was held open
	single          float64       // result of a measurement without a load, in ns
}

// figure is a value computed from a run.
type figure struct {
	unit string
	of   func(*run) float64
}

func perFetch(r *run, v float64) float64 {
	if r.Fetches == 0 {
		return 0
	}
	return v / float64(r.Fetches)
}

// The figures that rows compare and that the page lists.
var (
	serviceCPU = figure{"µs of the service's CPU a fetch", func(r *run) float64 { return perFetch(r, r.service.Seconds()*1e6) }}
	callerCPU  = figure{"µs of the caller's CPU a fetch", func(r *run) float64 { return perFetch(r, r.CPUSeconds*1e6) }}
	originCPU  = figure{"µs of the origin's CPU a fetch", func(r *run) float64 { return perFetch(r, r.origin.Seconds()*1e6) }}
	allCPU     = figure{"µs of CPU a fetch, caller and service", func(r *run) float64 { return serviceCPU.of(r) + callerCPU.of(r) }}
	rate       = figure{"fetches/s", func(r *run) float64 { return float64(r.Fetches) / max(r.Seconds, 1e-9) }}
	volume     = figure{"MiB a second of the service's CPU", func(r *run) float64 { return float64(r.Bytes) / (1 << 20) / max(r.service.Seconds(), 1e-9) }}
	allVolume  = figure{"MiB a second of CPU, caller and service", func(r *run) float64 {
		return float64(r.Bytes) / (1 << 20) / max(r.service.Seconds()+r.CPUSeconds, 1e-9)
	}}
	p50         = figure{"µs at the median", func(r *run) float64 { return r.P50 }}
	p90         = figure{"µs", func(r *run) float64 { return r.P90 }}
	p99         = figure{"µs", func(r *run) float64 { return r.P99 }}
	memory      = figure{"KiB each", func(r *run) float64 { return r.held / (1 << 10) }}
	peak        = figure{"MiB", func(r *run) float64 { return float64(r.peak) / (1 << 20) }}
	single      = figure{"ns", func(r *run) float64 { return r.single }}
	allocations = figure{"allocations", func(r *run) float64 { return r.allocs }}
	allocated   = figure{"KiB", func(r *run) float64 { return r.bytes / (1 << 10) }}
)

package main

import (
	"time"

	"fetchd/bench/caller"
)

// run is what one load gave.
type run struct {
	caller.Result
	service, origin time.Duration // of CPU; service is 0 where there was none
	peak            int64         // bytes of memory of the service, or of the caller where there was none
	allocs, bytes   float64       // allocated on the heap of the same for each fetch; 0 where that is not known
	held            float64       // bytes for each fetch that was held open
	single          float64       // what a measurement without a load gave
}

// figure is what is taken of a run.
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

// The figures that rows compare.
var (
	serviceCPU = figure{"µs of the service's CPU a fetch", func(r *run) float64 { return perFetch(r, r.service.Seconds()*1e6) }}
	callerCPU  = figure{"µs of the caller's CPU a fetch", func(r *run) float64 { return perFetch(r, r.CPUSeconds*1e6) }}
	allCPU     = figure{"µs of CPU a fetch, caller and service", func(r *run) float64 { return serviceCPU.of(r) + callerCPU.of(r) }}
	rate       = figure{"fetches/s", func(r *run) float64 { return float64(r.Fetches) / max(r.Seconds, 1e-9) }}
	volume     = figure{"MiB a second of the service's CPU", func(r *run) float64 { return float64(r.Bytes) / (1 << 20) / max(r.service.Seconds(), 1e-9) }}
	median     = figure{"µs at the median", func(r *run) float64 { return r.P50 }}
	memory     = figure{"KiB each", func(r *run) float64 { return r.held / (1 << 10) }}
	single     = figure{"ns", func(r *run) float64 { return r.single }}
	singleHeap = figure{"allocations", func(r *run) float64 { return r.allocs }}
)

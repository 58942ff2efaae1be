package site

import "time"

// Tally counts the visits that started in a span of time, From included and To
// not, on the site's clock.
type Tally struct {
	From, To time.Duration
	// All is their number, Hosts that of each host that had any.
	All   int
	Hosts map[string]int
	// Seconds has the number of each second from From on; the last may be cut
	// short by To.
	Seconds []int
	// Mean is the mean duration of those that have ended; zero if none has.
	Mean time.Duration
}

// PerSecond is the rate over the whole span; zero for an empty one.
func (t Tally) PerSecond() float64 {
	if t.To <= t.From {
		return 0
	}
	return float64(t.All) / (t.To - t.From).Seconds()
}

// Rate counts the visits that started from from to before to. Pass it those
// that are to count: a rate of fetches is one of [First] visits that are not
// Again.
func Rate(visits []Visit, from, to time.Duration) Tally {
	t := Tally{From: from, To: max(from, to), Hosts: make(map[string]int)}
	t.Seconds = make([]int, (t.To-from+time.Second-1)/time.Second)
	var ended, sum time.Duration
	for _, v := range visits {
		if v.Start < from || v.Start >= t.To {
			continue
		}
		t.All++
		t.Hosts[v.Host]++
		t.Seconds[(v.Start-from)/time.Second]++
		if v.Ended() {
			ended++
			sum += v.End - v.Start
		}
	}
	if ended > 0 {
		t.Mean = sum / ended
	}
	return t
}

// Steady is [Rate] without the time lead after the first start and the time
// tail before the last one: the start and the end of a crawl, in which not all
// hosts have work. The last start is itself outside, so that evenly spaced
// visits give their rate. The tally is empty where nothing is left between.
func Steady(visits []Visit, lead, tail time.Duration) Tally {
	if len(visits) == 0 {
		return Rate(nil, 0, 0)
	}
	first, last := visits[0].Start, visits[0].Start
	for _, v := range visits {
		first, last = min(first, v.Start), max(last, v.Start)
	}
	return Rate(visits, first+lead, last-tail)
}

// Ideal is the most fetches in a second that are polite: each of hosts is
// fetched from for mean, then left alone for delay. It is zero where both are
// zero, for there is no such bound then.
func Ideal(hosts int, delay, mean time.Duration) float64 {
	if delay+mean <= 0 {
		return 0
	}
	return float64(hosts) / (delay + mean).Seconds()
}

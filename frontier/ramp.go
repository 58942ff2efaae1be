package frontier

import "time"

// leastRamp is how many URLs a second are begun at least while a worker starts.
const leastRamp = 500

// ramp spreads the first fetches of hosts that are all due when a worker starts. Those
// that are begun together are due together ever after, and a wave of them waits for
// the CPU, one behind the other, each time; spread over their delay they wait for
// nobody. One goroutine uses it.
type ramp struct {
	began time.Time
	lasts time.Duration // zero: there is none
	rate  float64       // a second
	begun int
}

// newRamp begins one at now, of so many hosts, if they are more than can be fetched
// from at once.
func newRamp(now time.Time, hosts int64, delay time.Duration, open int) ramp {
	if hosts <= int64(open) || delay <= 0 {
		return ramp{}
	}
	rate := max(float64(hosts)/delay.Seconds(), leastRamp)
	return ramp{began: now, rate: rate, lasts: time.Duration(float64(hosts) / rate * float64(time.Second))}
}

// room is how many of n may begin now; what begins is counted by [ramp.count].
func (r *ramp) room(now time.Time, n int) int {
	past := now.Sub(r.began)
	if r.lasts == 0 || past >= r.lasts {
		return n
	}
	return max(0, min(n, 1+int(past.Seconds()*r.rate)-r.begun))
}

func (r *ramp) count(n int) { r.begun += n }

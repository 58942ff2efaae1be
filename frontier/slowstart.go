package frontier

import "time"

// slowestStart is the minimum number of URLs per second that a slow start allows.
const slowestStart = 500

// slowStart spreads the first fetches when many hosts are due at the start of a worker. Without it
// they would start together, be due together again after each delay, and then wait for the CPU. One
// goroutine uses it.
type slowStart struct {
	began   time.Time
	lasts   time.Duration // zero means that there is no slow start
	rate    float64       // per second
	started int
}

// newSlowStart starts at now, if more hosts are due than the worker can fetch from at once.
func newSlowStart(now time.Time, hosts int64, delay time.Duration, open int) slowStart {
	if hosts <= int64(open) || delay <= 0 {
		return slowStart{}
	}
	rate := max(float64(hosts)/delay.Seconds(), slowestStart)
	return slowStart{began: now, rate: rate, lasts: time.Duration(float64(hosts) / rate * float64(time.Second))}
}

// allowed returns how many of n URLs may start now. The caller reports them with [slowStart.add].
func (r *slowStart) allowed(now time.Time, n int) int {
	past := now.Sub(r.began)
	if r.lasts == 0 || past >= r.lasts {
		return n
	}
	return max(0, min(n, 1+int(past.Seconds()*r.rate)-r.started))
}

func (r *slowStart) add(n int) { r.started += n }

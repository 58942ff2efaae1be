// Package daemon has what each of our services needs around its work: its ports and the checks of the
// flags about them, a question to its own health check, memory and open files divided among those who
// need them, a garbage collector that suits it, and a log that cannot block it.
package daemon

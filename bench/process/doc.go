// Package process starts the programs that a benchmark measures and reads from
// the operating system what they have used. The clocks and the memory of another
// process are to be had on Linux alone; elsewhere reading them is an error.
package process

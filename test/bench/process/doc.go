// Package process starts programs and reads their CPU time and memory from the operating
// system. Reading them is supported only on Linux; elsewhere it returns an error.
package process

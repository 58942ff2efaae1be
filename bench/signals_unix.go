//go:build unix

package main

import "syscall"

// The signals between which a service is profiled.
const profileBegin, profileEnd = syscall.SIGUSR1, syscall.SIGUSR2

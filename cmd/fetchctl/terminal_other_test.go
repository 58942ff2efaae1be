//go:build !linux

package main

import "github.com/rogpeppe/go-internal/testscript"

func onTerminal(ts *testscript.TestScript, _ bool, _ []string) { ts.Fatalf("it needs Linux") }

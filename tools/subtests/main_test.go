package main

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"
)

// TestAnalyzer compares the reports with the comments in testdata.
func TestAnalyzer(t *testing.T) { analysistest.Run(t, analysistest.TestData(), analyzer, "a") }

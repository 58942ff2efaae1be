//go:build !unix

package kit

import "os/exec"

// runGroup runs a program. Its children may outlive it.
func runGroup(cmd *exec.Cmd) error { return cmd.Run() }

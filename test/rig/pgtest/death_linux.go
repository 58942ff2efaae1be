package pgtest

import "syscall"

// endWithTest makes the kernel end a program if the test is killed.
func endWithTest(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGQUIT }

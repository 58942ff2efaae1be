// Package complete writes scripts with which bash, zsh and fish complete the commands, flags
// and values of a program, from its kong model. The scripts never call the program and need
// no other package.
//
// The values of a flag are those of its enum, or those of its tag complete:"A,B", which allows
// others as well. A flag whose placeholder contains FILE is completed with files, and one whose
// placeholder contains DIR with directories. Arguments are completed in the same way by their
// names. Hidden commands and flags are left out.
package complete

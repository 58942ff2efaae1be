// Package complete writes scripts with which bash, zsh and fish complete the
// commands, flags and values of a program, from its kong model. The scripts are
// whole: they never call the program, and need no other package.
//
// A flag is completed with its enum; with the values in its tag complete:"A,B",
// where others are allowed too; with files where its placeholder speaks of a FILE,
// with folders where it speaks of a DIR. An argument is completed in the same way
// by its name. Hidden commands and flags are left out.
package complete

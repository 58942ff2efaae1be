// Package space is a network in which every address answers, and a name server for it: a namespace of Linux that
// programs with an egress guard are run in.
package space

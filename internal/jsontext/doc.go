// Package jsontext writes JSON: messages of the contract, in the one form that every API and program
// uses, and text that cannot control a terminal.
package jsontext

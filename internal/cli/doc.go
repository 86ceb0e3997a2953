// Package cli is what the two programs share in meeting people.
//
// Main runs a command of cobra's: signals end its context, an error becomes one line on standard error, and the exit
// code says of which kind it was. Help in groups, the manual page, completions, and what to do about a mistyped command
// or flag come with that.
//
// The rest is what flags and the configuration file take (sizes, endpoints, secrets, faults, the treatment of packets),
// and what commands print: tables, JSON, and errors about files.
//
// Nothing here starts a goroutine that outlives its call, but Leaving, which leaves one to a reader that may never come.
package cli

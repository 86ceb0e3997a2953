// Package cli holds the parts of the command line that the two programs share.
//
// Main runs a cobra command: signals end its context, an error becomes one line on standard error, and the exit code
// says what kind of error it was. Help in groups, the manual page, completions, and advice on mistyped commands and
// flags are included.
//
// The rest is what flags and the configuration file accept (sizes, endpoints, secrets, faults, the treatment of
// packets), and what commands print: tables, JSON, and errors about files.
//
// What a command writes to standard error doesn't wait for a reader that has stopped, as it comes from the middle of
// I/O.
//
// Nothing here starts a goroutine that outlives its call, except Leaving and the writer of messages, which may wait
// forever for the other end of a pipe.
package cli

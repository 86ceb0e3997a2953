// Package version says which build this is.
package version

// Version is set by the linker when the programs are built by make.
var Version = "development"

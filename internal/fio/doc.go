// Package fio implements fio's language for the load generator: its options, its job files and its JSON, so that
// users who know fio know this tool, and programs that read fio's output can read ours.
//
// [Options] is the single table of options, for command lines and for job files. [Parse] reads a job file. [Report]
// is the JSON of --output-format=json and json+, and prints the lines of terse.
package fio

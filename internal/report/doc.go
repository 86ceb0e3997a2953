// Package report draws what benchmarks measured: one self-contained page of HTML with plots.
//
// [Page.Write] renders everything visible in Go; the small script in the page only shows values at the pointer and
// switches between light and dark. What is drawn is the data of [Work], which the command fills and also prints as
// tables.
package report

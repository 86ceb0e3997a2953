package main

import (
	"fmt"
	"io"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
)

// view is a page that contains a list.
type view struct {
	head object // what comes before the list
	list string // the list's name in JSON
	rows []object
	none string // the text for people if the list is empty
}

// print shows the fields, and the list as a table, or everything as a JSON object.
func (v *view) print(w io.Writer, format cli.Format) error {
	if format == cli.JSON {
		rows := v.rows
		if rows == nil {
			rows = []object{}
		}
		return cli.PrintJSON(w, append(v.head[:len(v.head):len(v.head)], field{v.list, "", rows}))
	}
	if err := printFields(w, format, v.head); err != nil {
		return err
	}
	if len(v.rows) == 0 {
		fmt.Fprintln(w, v.none)
		return nil
	}
	printTable(w, v.rows)
	return nil
}

// printTable shows rows with the same fields. Those without text are shown only in JSON.
func printTable(w io.Writer, rows []object) {
	var head []any
	for _, f := range rows[0] {
		if f.text != "" {
			head = append(head, f.name)
		}
	}
	t := cli.NewTable(w, head...)
	for _, r := range rows {
		var cells []any
		for _, f := range r {
			if f.text != "" {
				cells = append(cells, f.text)
			}
		}
		t.AppendRow(cells)
	}
	t.Render()
}

// Subjects, versions, levels and modes by franz-go's client of registries; prints a line for each case.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/twmb/franz-go/pkg/sr"
)

const (
	one   = `{"type":"record","name":"G","fields":[{"name":"x","type":"int"}]}`
	two   = `{"type":"record","name":"G","fields":[{"name":"x","type":"int"},{"name":"y","type":"int","default":0}]}`
	other = `{"type":"record","name":"G","fields":[{"name":"z","type":"int"}]}`
)

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Println("FAIL", err)
		os.Exit(1)
	}
	return value
}

func check(what string, holds bool) {
	if !holds {
		fmt.Println("FAIL", what)
		os.Exit(1)
	}
	fmt.Println("OK", what)
}

func main() {
	ctx := context.Background()
	client := must(sr.NewClient(sr.URLs(os.Args[1])))
	first := must(client.CreateSchema(ctx, "go-value", sr.Schema{Schema: one}))
	second := must(client.CreateSchema(ctx, "go-value", sr.Schema{Schema: two}))
	check("versions count up", first.Version == 1 && second.Version == 2 && second.ID > first.ID)
	found := must(client.LookupSchema(ctx, "go-value", sr.Schema{Schema: one}))
	check("a schema is looked up", found.ID == first.ID && found.Version == 1)
	check("a schema of an id", must(client.SchemaByID(ctx, second.ID)).Schema == two)
	check("all versions", slices.Equal(must(client.SubjectVersions(ctx, "go-value")), []int{1, 2}))
	verdict := must(client.CheckCompatibility(ctx, "go-value", -1, sr.Schema{Schema: other}))
	check("compatibility is checked", !verdict.Is)
	var refusal *sr.ResponseError
	_, err := client.CreateSchema(ctx, "go-value", sr.Schema{Schema: other})
	check("what breaks its readers is refused", errors.As(err, &refusal) && refusal.StatusCode == 409)
	_, err = client.SchemaByVersion(ctx, "nothing", 1)
	check("a subject that is not there", errors.As(err, &refusal) && refusal.ErrorCode == 40401)
	set := client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatFullTransitive}, "go-value")
	check("a level is set", set[0].Err == nil && client.Compatibility(ctx, "go-value")[0].Level == sr.CompatFullTransitive)
	check("a mode", client.Mode(ctx)[0].Mode == sr.ModeReadWrite)
	refers := sr.Schema{
		Schema:     `{"type":"record","name":"H","fields":[{"name":"g","type":"G"}]}`,
		References: []sr.SchemaReference{{Name: "G", Subject: "go-value", Version: 2}},
	}
	third := must(client.CreateSchema(ctx, "go-refers-value", refers))
	references := must(client.SchemaReferences(ctx, "go-value", 2))
	check("references", len(references) == 1 && references[0].ID == third.ID)
	must(client.DeleteSubject(ctx, "go-refers-value", sr.SoftDelete))
	must(client.DeleteSubject(ctx, "go-refers-value", sr.HardDelete))
	check("deletion", slices.Equal(must(client.DeleteSubject(ctx, "go-value", sr.SoftDelete)), []int{1, 2}))
	must(client.DeleteSubject(ctx, "go-value", sr.HardDelete))
}

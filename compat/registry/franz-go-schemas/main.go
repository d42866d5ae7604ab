// The cases with franz-go and its client of registries; Avro by hamba/avro, Protobuf by Google's library.
package main

import (
	"cmp"
	"compat/harness"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hamba/avro/v2"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

const (
	count   = 20
	seconds = 60
)

// User is what each client writes.
type User struct {
	Name  string `avro:"name" json:"name"`
	Age   int    `avro:"age" json:"age"`
	Email string `avro:"email" json:"email,omitempty"`
}

// Team refers to a schema of another subject.
type Team struct {
	Lead User `avro:"lead"`
}

var (
	cases   = harness.NewCases()
	message = userMessage()
	assert  = harness.Assert
)

func text(file string) string {
	return string(harness.Got(os.ReadFile(filepath.Join(os.Getenv("COMPAT_SCHEMAS"), file))))
}

func users(first int, email string) []User {
	found := make([]User, count)
	for index := range found {
		number := first + index
		found[index] = User{"user " + itoa(number), number, email}
	}
	return found
}

func itoa(number int) string { return string(harness.Got(json.Marshal(number))) }

func within() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), seconds*time.Second)
	time.AfterFunc(seconds*time.Second, cancel)
	return ctx
}

func registry() *sr.Client { return harness.Got(sr.NewClient(sr.URLs(cases.Bootstrap))) }

func client(options ...kgo.Opt) *kgo.Client {
	options = append(options, kgo.SeedBrokers(os.Getenv("COMPAT_BOOTSTRAP")), kgo.AllowAutoTopicCreation())
	return harness.Got(kgo.NewClient(options...))
}

func send(topic string, values ...[]byte) {
	producer := client()
	defer producer.Close()
	for _, value := range values {
		harness.Must(producer.ProduceSync(within(), &kgo.Record{Topic: topic, Value: value}).FirstErr())
	}
}

func receive[T any](topic string, wanted int, decode func([]byte) T) []T {
	consumer := client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer consumer.Close()
	var found []T
	for len(found) < wanted {
		fetches := consumer.PollFetches(within())
		for _, failure := range fetches.Errors() {
			harness.Must(failure.Err)
		}
		fetches.EachRecord(func(record *kgo.Record) { found = append(found, decode(record.Value)) })
	}
	return found
}

func same(found, wanted []User) {
	slices.SortFunc(found, func(a, b User) int { return cmp.Compare(a.Age, b.Age) })
	assert(slices.Equal(found, wanted), "%v instead of %v", found, wanted)
}

// userMessage is the message that protoc would make of user.proto.
func userMessage() protoreflect.MessageDescriptor {
	field := func(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type) *descriptorpb.FieldDescriptorProto {
		label := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL
		return &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, Type: &kind, Label: &label}
	}
	file := &descriptorpb.FileDescriptorProto{
		Name: proto.String("user.proto"), Package: proto.String("compat"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{
			Name: proto.String("User"),
			Field: []*descriptorpb.FieldDescriptorProto{
				field("name", 1, descriptorpb.FieldDescriptorProto_TYPE_STRING),
				field("age", 2, descriptorpb.FieldDescriptorProto_TYPE_INT32),
			},
		}},
	}
	return harness.Got(protodesc.NewFile(file, nil)).Messages().Get(0)
}

func toProtobuf(value any) ([]byte, error) {
	user, made := value.(User), dynamicpb.NewMessage(message)
	made.Set(message.Fields().ByName("name"), protoreflect.ValueOfString(user.Name))
	made.Set(message.Fields().ByName("age"), protoreflect.ValueOfInt32(int32(user.Age)))
	return proto.Marshal(made)
}

func fromProtobuf(data []byte, value any) error {
	read := dynamicpb.NewMessage(message)
	err := proto.Unmarshal(data, read)
	user := value.(*User)
	user.Name = read.Get(message.Fields().ByName("name")).String()
	user.Age = int(read.Get(message.Fields().ByName("age")).Int())
	return err
}

// serde reads and writes users by the schema of an id.
func serde(id int, form string, schema avro.Schema) *sr.Serde {
	made := sr.NewSerde()
	switch form {
	case "avro":
		made.Register(id, User{},
			sr.EncodeFn(func(value any) ([]byte, error) { return avro.Marshal(schema, value) }),
			sr.DecodeFn(func(data []byte, value any) error { return avro.Unmarshal(schema, data, value) }))
	case "json":
		made.Register(id, User{}, sr.EncodeFn(json.Marshal), sr.DecodeFn(json.Unmarshal))
	case "protobuf":
		made.Register(id, User{}, sr.EncodeFn(toProtobuf), sr.DecodeFn(fromProtobuf), sr.Index(0))
	}
	return made
}

// reader reads users by the schemas that they name, which it asks the registry for.
func reader(form string) func([]byte) User {
	known, asked := map[int]*sr.Serde{}, registry()
	return func(data []byte) User {
		id, _, err := new(sr.ConfluentHeader).DecodeID(data)
		harness.Must(err)
		if known[id] == nil {
			schema := harness.Got(asked.SchemaByID(within(), id))
			var parsed avro.Schema
			if form == "avro" {
				parsed = harness.Got(avro.ParseWithCache(schema.Schema, "", &avro.SchemaCache{}))
			}
			known[id] = serde(id, form, parsed)
		}
		var user User
		harness.Must(known[id].Decode(data, &user))
		return user
	}
}

func exchange(form, file string, kind sr.SchemaType) string {
	topic := cases.Topic(form)
	schema := sr.Schema{Schema: text(file), Type: kind}
	id := harness.Got(registry().CreateSchema(within(), topic+"-value", schema)).ID
	var parsed avro.Schema
	if form == "avro" {
		parsed = harness.Got(avro.ParseWithCache(schema.Schema, "", &avro.SchemaCache{}))
	}
	writer := serde(id, form, parsed)
	for _, user := range users(0, "") {
		send(topic, harness.Got(writer.Encode(user)))
	}
	same(receive(topic, count, reader(form)), users(0, ""))
	found := harness.Got(registry().LookupSchema(within(), topic+"-value", schema))
	assert(found.ID == id && found.Version == 1, "looked up: %v", found)
	return itoa(count) + " records"
}

func evolution() string {
	topic, asked := cases.Topic("evolution"), registry()
	parse := func(file string) avro.Schema {
		return harness.Got(avro.ParseWithCache(text(file), "", &avro.SchemaCache{}))
	}
	first, wider := parse("user.avsc"), parse("user-wider.avsc")
	one := harness.Got(asked.CreateSchema(within(), topic+"-value", sr.Schema{Schema: text("user.avsc")}))
	two := harness.Got(asked.CreateSchema(within(), topic+"-value", sr.Schema{Schema: text("user-wider.avsc")}))
	assert(one.Version == 1 && two.Version == 2 && two.ID > one.ID, "versions count up")
	for _, user := range users(0, "") {
		send(topic, harness.Got(serde(one.ID, "avro", first).Encode(user)))
	}
	for _, user := range users(count, "a@b") {
		send(topic, harness.Got(serde(two.ID, "avro", wider).Encode(user)))
	}
	resolved := harness.Got(avro.NewSchemaCompatibility().Resolve(wider, first))
	both := sr.NewSerde()
	for id, schema := range map[int]avro.Schema{one.ID: resolved, two.ID: wider} {
		both.Register(id, User{}, sr.DecodeFn(func(data []byte, value any) error { return avro.Unmarshal(schema, data, value) }))
	}
	found := receive(topic, 2*count, func(data []byte) User {
		var user User
		harness.Must(both.Decode(data, &user))
		return user
	})
	same(found, append(users(0, "none"), users(count, "a@b")...))
	return "two versions, both read as the second"
}

func refusal() string {
	for end, kind := range map[string]sr.SchemaType{"avsc": sr.TypeAvro, "json": sr.TypeJSON, "proto": sr.TypeProtobuf} {
		subject, asked := cases.Topic("refusal")+"-"+end, registry()
		breaking := sr.Schema{Schema: text("user-breaking." + end), Type: kind}
		harness.Got(asked.CreateSchema(within(), subject, sr.Schema{Schema: text("user." + end), Type: kind}))
		verdict := harness.Got(asked.CheckCompatibility(within(), subject, -1, breaking))
		assert(!verdict.Is, "%s: checked", end)
		_, err := asked.CreateSchema(within(), subject, breaking)
		var refused *sr.ResponseError
		assert(errors.As(err, &refused) && refused.StatusCode == 409 && refused.ErrorCode == 40901, "%s: %v", end, err)
	}
	return "409 in three formats"
}

func references() string {
	topic, asked := cases.Topic("references"), registry()
	harness.Got(asked.CreateSchema(within(), topic+"-user", sr.Schema{Schema: text("user.avsc")}))
	refers := sr.Schema{
		Schema:     text("team.avsc"),
		References: []sr.SchemaReference{{Name: "compat.User", Subject: topic + "-user", Version: 1}},
	}
	team := harness.Got(asked.CreateSchema(within(), topic+"-value", refers))
	found := harness.Got(asked.SchemaReferences(within(), topic+"-user", 1))
	assert(len(found) == 1 && found[0].ID == team.ID, "who refers to it: %v", found)
	cache := &avro.SchemaCache{}
	harness.Got(avro.ParseWithCache(text("user.avsc"), "", cache))
	schema := harness.Got(avro.ParseWithCache(harness.Got(asked.SchemaByID(within(), team.ID)).Schema, "", cache))
	writer := sr.NewSerde()
	writer.Register(team.ID, Team{},
		sr.EncodeFn(func(value any) ([]byte, error) { return avro.Marshal(schema, value) }),
		sr.DecodeFn(func(data []byte, value any) error { return avro.Unmarshal(schema, data, value) }))
	for _, user := range users(0, "") {
		send(topic, harness.Got(writer.Encode(Team{user})))
	}
	read := receive(topic, count, func(data []byte) User {
		var one Team
		harness.Must(writer.Decode(data, &one))
		return one.Lead
	})
	same(read, users(0, ""))
	return "Avro, of another subject"
}

func administration() string {
	subject, asked := cases.Topic("administration"), registry()
	first := harness.Got(asked.CreateSchema(within(), subject, sr.Schema{Schema: text("user.avsc")}))
	assert(strings.Contains(harness.Got(asked.SchemaByID(within(), first.ID)).Schema, `"User"`), "a schema of an id")
	set := asked.SetCompatibility(within(), sr.SetCompatibility{Level: sr.CompatFullTransitive}, subject)
	assert(set[0].Err == nil && asked.Compatibility(within(), subject)[0].Level == sr.CompatFullTransitive, "a level is set")
	assert(asked.Mode(within())[0].Mode == sr.ModeReadWrite, "a mode")
	assert(slices.Equal(harness.Got(asked.SubjectVersions(within(), subject)), []int{1}), "all versions")
	assert(slices.Contains(harness.Got(asked.Subjects(within())), subject), "subjects")
	var refused *sr.ResponseError
	_, err := asked.SchemaByVersion(within(), "nothing", 1)
	assert(errors.As(err, &refused) && refused.ErrorCode == 40401, "a subject that is not there: %v", err)
	_, err = asked.SchemaByVersion(within(), subject, 7)
	assert(errors.As(err, &refused) && refused.ErrorCode == 40402, "a version that is not there: %v", err)
	assert(slices.Equal(harness.Got(asked.DeleteSubject(within(), subject, sr.SoftDelete)), []int{1}), "deletion")
	harness.Got(asked.DeleteSubject(within(), subject, sr.HardDelete))
	return "levels, modes, versions, deletion, 40401, 40402"
}

func interop() string {
	wanted := os.Getenv("COMPAT_TOPICS")
	if wanted == "" {
		harness.Skip("no other client has written anything")
	}
	topics := strings.Split(wanted, ",")
	for _, one := range topics {
		topic, form, _ := strings.Cut(one, ":")
		same(receive(topic, count, reader(form)), users(0, ""))
	}
	return itoa(len(topics)) + " topics of others"
}

func main() {
	harness.Names = []string{
		"avro", "json", "protobuf", "evolution", "refusal", "references", "administration", "interop",
	}
	cases.Add("avro", func() string { return exchange("avro", "user.avsc", sr.TypeAvro) })
	cases.Add("json", func() string { return exchange("json", "user.json", sr.TypeJSON) })
	cases.Add("protobuf", func() string { return exchange("protobuf", "user.proto", sr.TypeProtobuf) })
	cases.Add("evolution", evolution)
	cases.Add("refusal", refusal)
	cases.Add("references", references)
	cases.Add("administration", administration)
	cases.Add("interop", interop)
	cases.Main()
}

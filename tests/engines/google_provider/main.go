// A provider for `tofu validate` and `tofu test`: it knows the arguments of hashicorp/google as schema.json has them, and
// does nothing. (tofu's mock_provider makes up what a real one would answer, but asks a provider for the schema.)
package main

import (
	"context"
	_ "embed"
	"encoding/json"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tfprotov5/tf5server"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

//go:embed schema.json
var schemaJSON []byte

type block struct {
	Attributes map[string]struct {
		Type                         json.RawMessage
		Required, Optional, Computed bool
	}
	BlockTypes map[string]struct {
		NestingMode string `json:"nesting_mode"`
		MinItems    int64  `json:"min_items"`
		MaxItems    int64  `json:"max_items"`
		Block       block
	} `json:"block_types"`
}

var modes = map[string]tfprotov5.SchemaNestedBlockNestingMode{
	"single": tfprotov5.SchemaNestedBlockNestingModeSingle,
	"list":   tfprotov5.SchemaNestedBlockNestingModeList,
	"set":    tfprotov5.SchemaNestedBlockNestingModeSet,
}

func (b block) described() *tfprotov5.SchemaBlock {
	described := &tfprotov5.SchemaBlock{}
	for name, it := range b.Attributes {
		kind, err := tftypes.ParseJSONType(it.Type)
		if err != nil {
			panic(err)
		}
		described.Attributes = append(described.Attributes, &tfprotov5.SchemaAttribute{
			Name: name, Type: kind, Required: it.Required, Optional: it.Optional, Computed: it.Computed,
		})
	}
	for name, it := range b.BlockTypes {
		described.BlockTypes = append(described.BlockTypes, &tfprotov5.SchemaNestedBlock{
			TypeName: name, Nesting: modes[it.NestingMode], MinItems: it.MinItems, MaxItems: it.MaxItems, Block: it.Block.described(),
		})
	}
	return described
}

func schemas(blocks map[string]block) map[string]*tfprotov5.Schema {
	described := map[string]*tfprotov5.Schema{}
	for name, it := range blocks {
		described[name] = &tfprotov5.Schema{Block: it.described()}
	}
	return described
}

// What is not said below is never asked for: it would end the provider, and the test.
type provider struct{ tfprotov5.ProviderServer }

func (provider) GetProviderSchema(context.Context, *tfprotov5.GetProviderSchemaRequest) (*tfprotov5.GetProviderSchemaResponse, error) {
	var held struct {
		Resources   map[string]block `json:"resource_schemas"`
		DataSources map[string]block `json:"data_source_schemas"`
	}
	if err := json.Unmarshal(schemaJSON, &held); err != nil {
		return nil, err
	}
	optional := func(name string, kind tftypes.Type) *tfprotov5.SchemaAttribute {
		return &tfprotov5.SchemaAttribute{Name: name, Type: kind, Optional: true}
	}
	return &tfprotov5.GetProviderSchemaResponse{
		Provider: &tfprotov5.Schema{Block: &tfprotov5.SchemaBlock{
			Attributes: []*tfprotov5.SchemaAttribute{
				optional("project", tftypes.String),
				optional("region", tftypes.String),
				optional("billing_project", tftypes.String),
				optional("user_project_override", tftypes.Bool),
			},
		}},
		ResourceSchemas:   schemas(held.Resources),
		DataSourceSchemas: schemas(held.DataSources),
	}, nil
}

func (provider) PrepareProviderConfig(_ context.Context, request *tfprotov5.PrepareProviderConfigRequest) (*tfprotov5.PrepareProviderConfigResponse, error) {
	return &tfprotov5.PrepareProviderConfigResponse{PreparedConfig: request.Config}, nil
}

func (provider) ValidateResourceTypeConfig(context.Context, *tfprotov5.ValidateResourceTypeConfigRequest) (*tfprotov5.ValidateResourceTypeConfigResponse, error) {
	return &tfprotov5.ValidateResourceTypeConfigResponse{}, nil
}

func (provider) ValidateDataSourceConfig(context.Context, *tfprotov5.ValidateDataSourceConfigRequest) (*tfprotov5.ValidateDataSourceConfigResponse, error) {
	return &tfprotov5.ValidateDataSourceConfigResponse{}, nil
}

func (provider) UpgradeResourceState(_ context.Context, request *tfprotov5.UpgradeResourceStateRequest) (*tfprotov5.UpgradeResourceStateResponse, error) {
	return &tfprotov5.UpgradeResourceStateResponse{UpgradedState: &tfprotov5.DynamicValue{JSON: request.RawState.JSON}}, nil
}

func (provider) StopProvider(context.Context, *tfprotov5.StopProviderRequest) (*tfprotov5.StopProviderResponse, error) {
	return &tfprotov5.StopProviderResponse{}, nil
}

func main() {
	err := tf5server.Serve("registry.opentofu.org/hashicorp/google", func() tfprotov5.ProviderServer { return provider{} })
	if err != nil {
		panic(err)
	}
}
